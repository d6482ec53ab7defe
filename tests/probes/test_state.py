from collections import deque

import torch
from torch import nn

from flightrec.probes.state import SMALL_BUFFER, StateProbe


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.cache = []
        self.memory = {"last": None}
        self.hidden = torch.zeros(2)
        self.recent = deque([1])
        self.register_buffer("running", torch.zeros(3))
        self.register_buffer("huge", torch.zeros(SMALL_BUFFER))
        self.register_buffer("late", None)


def attributes(snapshot, place=":"):
    return dict(snapshot.attributes)[place]


def test_scalars_containers_and_tensors_are_kept_as_they_were():
    model = Counting()
    probe = StateProbe({"": model})
    first = probe.read()
    model.calls += 1
    model.cache.append(7)
    model.memory["last"] = 3
    model.hidden.add_(1)
    model.recent.append(2)
    second = probe.read()
    then, now = attributes(first), attributes(second)
    assert (then["calls"], now["calls"]) == (0, 1)
    assert (then["cache"], now["cache"]) == ([], [7])
    assert (then["memory"], now["memory"]) == ({"last": None}, {"last": 3})
    assert then["hidden"].tolist() == [0, 0]
    assert now["hidden"].tolist() == [1, 1]
    assert (list(then["recent"]), list(now["recent"])) == ([1], [1, 2])


def test_small_buffers_are_copied_even_when_no_version_moves():
    model = Counting()
    probe = StateProbe({"": model})
    first = probe.read()
    model.running.data.add_(1)
    model.running.numpy()[0] = 9
    second = probe.read()
    assert dict(first.buffers())[":running"].tolist() == [0, 0, 0]
    assert dict(second.buffers())[":running"].tolist() == [9, 1, 1]


def test_a_large_buffer_is_copied_once_while_it_does_not_change():
    model = Counting()
    probe = StateProbe({"": model})
    first, second = dict(probe.read().buffers()), dict(probe.read().buffers())
    assert first[":huge"] is second[":huge"]
    model.huge.add_(1)
    assert dict(probe.read().buffers())[":huge"][0] == 1
    assert first[":huge"][0] == 0


def test_a_buffer_that_is_replaced_or_appears_later_is_seen():
    model = Counting()
    probe = StateProbe({"": model})
    probe.read()
    model.running = torch.full((3,), 5.0)
    model.late = torch.ones(1)
    now = dict(probe.read().buffers())
    assert now[":running"].tolist() == [5, 5, 5]
    assert now[":late"].tolist() == [1]


def test_training_flags_and_shared_modules():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.Dropout()})
    model["c"].eval()
    assert StateProbe({"net": model}).read().training == ("net:", "net:a")


def test_bytes_count_only_new_copies():
    model = Counting()
    probe = StateProbe({"": model})
    small = 3 * 4
    assert probe.read().nbytes == small + SMALL_BUFFER * 4
    assert probe.read().nbytes == small


def test_mixed_dtypes_and_meta_buffers():
    model = nn.Module()
    model.register_buffer("low", torch.ones(2, dtype=torch.float16))
    model.register_buffer("count", torch.tensor(3))
    model.register_buffer("ghost", torch.ones(2, device="meta"))
    values = dict(StateProbe({"": model}).read().buffers())
    assert values[":low"].dtype is torch.float16
    assert values[":count"].shape == ()
    assert values[":ghost"].device.type == "meta"
