"""Which dimension holds the samples, and rows that change places."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch

from replay.rows import Exchange, UnlikeError, sizes

Pair = namedtuple("Pair", "x y")


def swap(value, donor, size, rows, source=lambda row: row):
    return Exchange(size=size, rows=frozenset(rows), source=source)(value, donor)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.ones(5, 2), 5),
        ({"x": torch.ones(4, 3), "y": torch.ones(4), "bias": torch.ones(9, 9)}, 4),
        ((torch.ones(6, 3), {"deep": [torch.ones(6)]}), 6),
        ((torch.ones(4, 3, 8, 8), [{"box": torch.ones(5, 4), "is": torch.ones(5)}] * 4), 4),
        ([torch.ones(3, 8, 8), torch.ones(3, 9, 9)], 2),
        (torch.tensor(1.0), None),
        (torch.ones(1, 7), None),
        ("text", None),
    ],
)
def test_number_of_samples_is_guessed(batch, expected):
    assert next(iter(sizes(batch)), None) == expected


def test_rows_of_nested_tensors_are_exchanged():
    batch = {"x": torch.zeros(3, 2), "pair": Pair(torch.zeros(3), "same"), "n": torch.zeros(2)}
    donor = {"x": torch.ones(3, 2), "pair": Pair(torch.ones(3), "other"), "n": torch.ones(2)}
    mixed = swap(batch, donor, 3, {1})
    assert mixed["x"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert mixed["pair"] == Pair(mixed["pair"].x, "same")
    assert mixed["pair"].x.tolist() == [0, 1, 0]
    assert mixed["n"] is batch["n"]
    assert batch["x"].sum() == 0


def test_mapping_keeps_its_type_and_order():
    batch = OrderedDict(b=torch.zeros(2), a=torch.zeros(2))
    mixed = swap(batch, {"a": torch.ones(2), "b": torch.ones(2)}, 2, {0})
    assert type(mixed) is OrderedDict
    assert list(mixed) == ["b", "a"]


def test_list_with_one_entry_per_sample_is_exchanged_by_entry():
    batch = (torch.zeros(2, 3), [{"box": torch.zeros(5)}, {"box": torch.zeros(1)}])
    donor = (torch.ones(2, 3), [{"box": torch.ones(7)}, {"box": torch.ones(9)}])
    mixed = swap(batch, donor, 2, {1})
    assert [each["box"].tolist() for each in mixed[1]] == [[0] * 5, [1] * 9]


def test_list_of_kinds_of_input_is_looked_into():
    batch, donor = [torch.zeros(2), torch.zeros(2, 1)], [torch.ones(2), torch.ones(2, 1)]
    mixed = swap(batch, donor, 2, {0})
    assert [each.flatten().tolist() for each in mixed] == [[1, 0], [1, 0]]


def test_donor_with_fewer_rows_is_used_again_from_its_start():
    mixed = swap(torch.zeros(4), torch.tensor([1.0, 2.0]), 4, {1, 3})
    assert mixed.tolist() == [0, 2, 0, 2]


def test_requirement_of_gradients_is_kept():
    assert swap(torch.zeros(2, requires_grad=True), torch.ones(2), 2, {0}).requires_grad


@pytest.mark.parametrize(
    "donor",
    [{"x": torch.ones(3, 5)}, {"y": torch.ones(3, 2)}, [torch.ones(3, 2)], {"x": 1}],
)
def test_unlike_donor_is_refused(donor):
    with pytest.raises(UnlikeError):
        swap({"x": torch.zeros(3, 2)}, donor, 3, {0})
