"""Models are described and rebuilt without constructors, and compute the same bits."""

from __future__ import annotations

import argparse
import collections
import copy
import enum
import functools
import json
import logging
import string
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, rnn

from flightrec import describing
from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.rebuilding import ModuleDecoder
from flightrec.structure import describe, needed_names, rebuild
from flightrec.tree import Decoder, TensorLoader, TensorTable
from flightrec.trust import Trust
from tests.twins import assert_same, rebuilt, through_json

torch.set_num_threads(1)


class Mode(enum.Enum):
    ADD = "add"
    MULTIPLY = "multiply"


class Text(str, enum.Enum):  # noqa: UP042 - it is not a StrEnum
    A = "a"


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Config:
    width: int = 4
    rates: list[float] = field(default_factory=lambda: [0.1, float("inf")])


class FrozenDict(collections.OrderedDict):
    """Refuses every write once it is made, like the one in diffusers."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__frozen = True

    def __setitem__(self, key, value):
        if hasattr(self, "_FrozenDict__frozen"):
            raise TypeError("frozen")
        super().__setitem__(key, value)


class Coder:
    __slots__ = ("clip", "weights")

    def __init__(self):
        self.weights = (10.0, 5.0)
        self.clip = 4.1


def widen(x, factor=2.0):
    return x * factor


def double_hook(module, args, output):
    return output * 2


def half_hook(module, args):
    return (args[0] / 2,)


def scale_grad(grad):
    return grad * 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = Mode.MULTIPLY
        self.text = Text.A
        self.point = Point(1, 0.5)
        self.config = Config()
        self.frozen = FrozenDict(a=1, b=(1, 2))
        self.coder = Coder()
        self.table = {1: "one", "two": [2, {3}], (4, 5): None, None: True}
        self.default = collections.defaultdict(list, a=[1])
        self.act = functools.partial(F.leaky_relu, negative_slope=0.3)
        self.other_act = torch.relu
        self.widen = widen
        self.kind = nn.LayerNorm
        self.dtype = torch.bfloat16
        self.device = torch.device("cpu")
        self.args = argparse.Namespace(depth=3)
        self.extra = torch.arange(3.0)
        self.big = 2**80
        self.weird = float("nan")
        self.fc = nn.Linear(4, 4)
        self.register_buffer("moved", torch.zeros(()), persistent=False)
        self.register_buffer("nothing", None)
        self.register_parameter("absent", None)
        self.gen = torch.Generator().manual_seed(7)
        self.backend = torch.nn.attention.SDPBackend.MATH

    def forward(self, x):
        self.moved += 1
        x = self.widen(self.act(self.fc(x)))
        x = x * self.config.width if self.mode is Mode.MULTIPLY else x + self.config.width
        noise = torch.rand(x.shape, generator=self.gen)
        return self.other_act(x * noise) * self.point.y * self.coder.clip + self.moved


def test_values_of_all_kinds():
    net = Net()
    twin = rebuilt(net)
    assert type(twin) is Net
    for name in (
        "backend",
        "mode",
        "text",
        "point",
        "config",
        "frozen",
        "table",
        "default",
        "kind",
    ):
        assert getattr(twin, name) == getattr(net, name)
        assert type(getattr(twin, name)) is type(getattr(net, name))
    assert twin.frozen._FrozenDict__frozen is True
    assert twin.default.default_factory is list
    assert twin.widen is widen
    assert twin.other_act is torch.relu
    assert twin.coder.weights == (10.0, 5.0)
    assert twin.args == net.args
    assert twin.big == 2**80
    assert twin.weird != twin.weird
    assert twin.nothing is None
    assert twin.absent is None
    assert twin._non_persistent_buffers_set == {"moved"}
    assert_same(net, twin, torch.randn(2, 4))


def test_constructors_do_not_run(monkeypatch):
    net = Net()
    monkeypatch.setattr(Net, "__init__", lambda self: pytest.fail("constructed"))
    monkeypatch.setattr(Net, "__new__", lambda cls: pytest.fail("made"))
    monkeypatch.setattr(Net, "__setstate__", lambda self, s: pytest.fail("set"), raising=False)
    monkeypatch.setattr(Net, "__setattr__", lambda self, n, v: pytest.fail(n))
    twin = through_json(net)[0][""]
    assert torch.equal(twin.fc.weight, net.fc.weight)


def test_describing_changes_nothing():
    net = Net()
    before = copy.deepcopy(net.state_dict())
    state, rng = set(vars(net)), torch.get_rng_state()
    describe({"": net}, TensorTable())
    assert set(vars(net)) == state
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_describing_twice_gives_the_same():
    net = Net()
    first, second = (describe({"a": net, "b": net.fc}, TensorTable()) for _ in range(2))
    assert json.dumps(first.node) == json.dumps(second.node)
    assert first.sources == second.sources


class Shared(nn.Module):
    """Tied weights, a module in two places, a list that points back, and a stash outside."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.blocks = nn.ModuleList([Child(self), Child(self)])
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.stash = [self.embed.weight, self.first]
        self.ring = [1]
        self.ring.append(self.ring)
        self.view = self.embed.weight.detach()[2:4]
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        object.__setattr__(self, "teacher", nn.Linear(4, 4))

    def forward(self, ids):
        x = self.again(self.first(self.embed(ids)))
        for block in self.blocks:
            x = block(x)
        return self.head(x + self.teacher(x) + self.stash[1](x) + self.frozen(x))


class Child(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.parent = [parent]
        self.ref = weakref.ref(parent.first.weight)

    def forward(self, x):
        return x @ self.ref() + self.parent[0].first.bias


def test_what_was_shared_is_shared():
    net = Shared()
    twin = rebuilt(net)
    assert twin.head.weight is twin.embed.weight is twin.stash[0]
    assert twin.first is twin.again is twin.stash[1]
    assert twin.blocks[0].parent[0] is twin
    assert twin.ring[1] is twin.ring
    assert twin.view.data_ptr() == twin.embed.weight[2:4].data_ptr()
    assert twin.blocks[1].ref() is twin.first.weight
    assert "teacher" not in dict(twin.named_modules())
    assert not twin.frozen.weight.requires_grad
    assert_same(net, twin, torch.tensor([[1, 2, 6]]))


def test_several_roots_share_too():
    shared = nn.Linear(3, 3)
    roots = {"gen": nn.Sequential(shared), "disc": nn.Sequential(shared, nn.ReLU())}
    models, _ = through_json(roots)
    assert list(models) == ["gen", "disc"]
    assert models["gen"][0] is models["disc"][0]


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Rounded(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.round = Straight.apply

    def forward(self, x):
        return self.round(super().forward(x))


def test_autograd_functions():
    net = Rounded()
    assert_same(net, rebuilt(net), torch.randn(3, 2))


def test_strides_are_kept():
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    twin = rebuilt(net)
    assert twin.weight.stride() == net.weight.stride()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent(kind):
    net = kind(3, 5, num_layers=2, bidirectional=True, dropout=0.3, batch_first=True)
    twin = rebuilt(net)
    assert twin._flat_weights[0] is twin.weight_ih_l0
    assert twin._flat_weight_refs[0]() is twin.weight_ih_l0
    packed = rnn.pack_padded_sequence(torch.randn(2, 4, 3), [4, 2], batch_first=True)
    torch.manual_seed(3)
    expected = net(packed)[0].data
    torch.manual_seed(3)
    assert torch.equal(twin(packed)[0].data, expected)
    assert_same(net, twin, torch.randn(2, 4, 3))
    twin.double()
    assert twin._flat_weights[0].dtype is torch.float64


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
def test_norms_of_weights():
    net = nn.Sequential(
        nn.utils.weight_norm(nn.Linear(4, 4)),
        nn.utils.spectral_norm(nn.Linear(4, 4)),
        parametrizations.weight_norm(nn.Linear(4, 4)),
        parametrizations.spectral_norm(nn.Conv1d(3, 3, 1)),
        parametrizations.orthogonal(nn.Linear(4, 4)),
    )
    twin = rebuilt(net)
    assert type(twin[2]).__name__ == "ParametrizedLinear"
    assert isinstance(twin[2], nn.Linear)
    assert parametrize.is_parametrized(twin[3], "weight")
    assert_same(net, twin, torch.randn(2, 3, 4))
    with torch.no_grad():
        twin[4].weight = torch.eye(4)
    assert torch.equal(twin[4].weight, torch.eye(4))
    parametrize.remove_parametrizations(twin[4], "weight")
    assert type(twin[4]) is nn.Linear
    assert type(copy.deepcopy(twin[2])).__name__ == "ParametrizedLinear"


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def test_parametrizations_of_ones_own():
    net = nn.Linear(3, 3)
    parametrize.register_parametrization(net, "weight", Symmetric())
    twin = rebuilt(net)
    assert_same(net, twin, torch.randn(2, 3))


def test_pruned_weights():
    net = nn.Linear(4, 4)
    prune.l1_unstructured(net, "weight", amount=0.5)
    prune.random_unstructured(net, "weight", amount=0.5)
    twin = rebuilt(net)
    assert_same(net, twin, torch.randn(2, 4))


def test_lazy_modules_before_and_after():
    lazy = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    early = rebuilt(lazy)
    lazy(torch.randn(3, 5))
    late = rebuilt(lazy)
    assert type(late[0]) is nn.Linear
    assert_same(lazy, late, torch.randn(3, 5))
    early(torch.randn(3, 5))
    assert type(early[0]) is nn.Linear
    assert early[0].weight.shape == (4, 5)
    assert not early[0]._forward_pre_hooks


def test_hooks_by_name_are_kept_and_others_are_told():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[0].register_forward_hook(double_hook)
    net[0].register_forward_pre_hook(half_hook)
    net[0].handle = net[1].register_forward_hook(functools.partial(with_scale, 5.0))
    net[1].register_forward_hook(with_kwargs_hook, with_kwargs=True, always_call=True)
    net[1].register_full_backward_hook(grad_hook)
    net[0].weight.register_hook(scale_grad)
    twin = rebuilt(net)
    assert twin[0].weight._backward_hooks is not None
    x = torch.randn(2, 4)
    assert_same(net, twin, x)
    before = twin(x)
    twin[0].handle.remove()
    assert torch.equal(twin(x) * 5, before)

    net[0].register_forward_hook(lambda *_: None)
    net[1].weightless = 1
    net[0].bias.register_hook(lambda g: g)
    assert_same(net, rebuilt(net, notes=EXPECTED_HOOK_NOTES), x)


EXPECTED_HOOK_NOTES = [
    "0.bias._backward_hooks: builtins.function",
    "0._forward_hooks: builtins.function",
]


def with_scale(scale, module, args, output):
    return output * scale


def with_kwargs_hook(module, args, kwargs, output):
    return output + len(kwargs)


def grad_hook(module, grad_input, grad_output):
    return tuple(g * 2 for g in grad_input)


def test_hooks_of_state_dict_are_left_out_silently():
    net = nn.Linear(2, 2)
    net.register_state_dict_pre_hook(lambda *_: None)
    net.register_load_state_dict_post_hook(lambda *_: None)
    assert_same(net, rebuilt(net), torch.ones(1, 2))


class Patched(nn.Linear):
    def other(self, x):
        return super().forward(x) + 1


def free_forward(self, x):
    return F.linear(x, self.weight) * 3


def test_replaced_forwards():
    bound = Patched(3, 3)
    bound.forward = bound.other
    assert_same(bound, rebuilt(bound), torch.randn(2, 3))
    free = nn.Linear(3, 3)
    free.forward = free_forward.__get__(free)
    assert_same(free, rebuilt(free), torch.randn(2, 3))
    super_forward = Patched(3, 3)
    super_forward.forward = nn.Linear.forward.__get__(super_forward)
    assert_same(super_forward, rebuilt(super_forward), torch.randn(2, 3))
    local = nn.Linear(3, 3)
    local.forward = lambda x: x
    twin = rebuilt(local, notes=["forward: builtins.function"])
    with pytest.raises(CannotRebuildError, match="local"):
        twin(torch.ones(1, 3))


class Slotted(nn.Module):
    __slots__ = ("factor",)

    def __init__(self):
        super().__init__()
        self.factor = 3.0

    @property
    def doubled(self):
        return self.factor * 2

    def forward(self, x):
        return x * self.doubled


def test_slots_and_properties():
    net = nn.Sequential(nn.Linear(2, 2), Slotted())
    assert_same(net, rebuilt(net), torch.ones(1, 2))


class DictModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.log = logging.getLogger("x")
        self.file = open(__file__)  # noqa: SIM115 - stays open on purpose
        self.local = lambda x: x + 1
        self.stream = iter([1, 2])
        self.fc = nn.Linear(2, 2)

    def forward(self, x, touch=None):
        if touch is not None:
            getattr(self, touch)(x)
        return self.fc(x)


def test_what_cannot_be_held_complains_only_when_touched():
    net = DictModule()
    names = ("lock", "log", "file", "local", "stream")
    models, description = through_json(net)
    net.file.close()
    twin = models[""]
    told = [note["what"].partition(":")[0] for note in description.not_captured]
    assert told == list(names)
    assert_same(net, twin, torch.ones(1, 2))
    for name in names:
        with pytest.raises(CannotRebuildError, match=name):
            twin(torch.ones(1, 2), touch=name)
    copy.deepcopy(twin)


def test_classes_inside_functions_are_told_at_once():
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(x)

    net = nn.Sequential(Local(), Local(), nn.ReLU())
    models, description = through_json(net)
    (note,) = description.not_captured
    assert "Local, first at 0" in note["what"]
    assert "--model" in note["why"]
    twin = models[""]
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert torch.equal(twin[1].fc.weight, net[1].fc.weight)
    with pytest.raises(CannotRebuildError, match="Local"):
        twin(torch.ones(1, 2))


class WithDel(nn.Linear):
    def __del__(self):
        pass


def test_a_class_with_del_is_told_at_once():
    models, description = through_json(nn.Sequential(WithDel(2, 2)))
    (note,) = description.not_captured
    assert "__del__" in note["why"]
    with pytest.raises(CannotRebuildError, match="__del__"):
        models[""](torch.ones(1, 2))


def test_compiled_programs_and_graphs_become_placeholders():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    net = nn.ModuleDict({"graph": traced, "plain": nn.Linear(2, 2)})
    models, description = through_json(net)
    assert len(description.not_captured) == 1
    with pytest.raises(CannotRebuildError, match="graph"):
        models[""]["graph"](torch.ones(1, 2))
    assert torch.equal(models[""]["plain"].weight, net["plain"].weight)
    assert torch.equal(
        models[""]["graph"].get_parameter("0.weight"), traced.get_parameter("0.weight")
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_modules_keep_their_weights():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    models, description = through_json(nn.Sequential(scripted))
    assert len(description.not_captured) == 1
    twin = models[""]
    assert [n for n, _ in twin.named_parameters()] == ["0.0.weight", "0.0.bias"]
    with pytest.raises(CannotRebuildError):
        twin(torch.ones(1, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_is_seen_through():
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    whole = torch.compile(inner)
    models, description = through_json(whole)
    assert [note["what"] for note in description.not_captured] == ["model: torch.compile"]
    twin = models[""]
    assert [n for n, _ in twin.named_modules()] == [n for n, _ in whole.named_modules()]
    assert_same(inner, twin._orig_mod, torch.ones(1, 2))
    assert torch.equal(twin(torch.ones(1, 2)), inner(torch.ones(1, 2)))
    assert twin.append == twin._orig_mod.append
    inner.compile()
    in_place = rebuilt(inner, notes=["model: torch.compile"])
    assert torch.equal(in_place(torch.ones(1, 2)), twin(torch.ones(1, 2)))


def test_data_parallel_is_seen_through():
    net = nn.DataParallel(nn.Linear(2, 2))
    twin = rebuilt(net, notes=["model: DataParallel"])
    assert_same(net, twin, torch.ones(1, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_packed_quantized_weights_complain_when_touched():
    if "qnnpack" in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    models, description = through_json(net)
    assert any("_packed_params" in note["what"] for note in description.not_captured)
    with pytest.raises(CannotRebuildError, match="_packed_params"):
        models[""](torch.ones(1, 4))


def test_deep_nesting_needs_no_deep_stack():
    net = nn.Linear(2, 2)
    for _ in range(300):
        outer = nn.Module()
        outer.child = net
        net = outer
    twin = rebuilt(net)
    assert len(list(twin.modules())) == 301


class Bare(nn.Module):
    """Was never initialised as a module, which some wrappers do on purpose."""

    def __init__(self):
        self.__dict__["value"] = 3

    def forward(self, x):
        return x * self.value


def test_a_module_that_was_never_initialised():
    net = nn.Module()
    net.__dict__["odd"] = Bare()
    assert rebuilt(net).odd.value == 3


class Größe(nn.Linear):
    pass


def test_names_in_other_scripts():
    net = Größe(2, 2)
    assert_same(net, rebuilt(net), torch.ones(1, 2))


def test_devices_are_moved_to_where_they_are_said_to_be():
    net = nn.Module()
    net.device = torch.device("cuda", 1)
    table = TensorTable()
    node = describe({"": net}, table).node
    made = {"$": "torch_generator", "device": "cuda:1", "state": None, "default": False}
    node["modules"][0]["state"].append(["gen", made])

    def place(name):
        assert name == "cuda:1"
        return torch.device("cpu")

    twin = rebuild(node, lambda i: pytest.fail("no tensors"), Trust(), place=place)[""]
    assert twin.device == torch.device("cpu")
    assert twin.gen.device == torch.device("cpu")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_distributed_wrappers_are_seen_through(tmp_path):
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("no gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        net = nn.parallel.DistributedDataParallel(inner)
        twin = rebuilt(net, notes=["model: DistributedDataParallel"])
        assert_same(net, twin, torch.randn(3, 2))
    finally:
        dist.destroy_process_group()


def test_a_fault_of_ours_costs_one_module(monkeypatch):
    monkeypatch.setenv("FLIGHTREC_STRICT", "0")
    monkeypatch.setattr(
        describing, "wrapped", lambda module: 1 / 0 if type(module) is nn.ReLU else None
    )
    models, description = through_json(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert description.not_captured == [
        {"what": "1", "why": "ZeroDivisionError while it was described"}
    ]
    assert models[""][0](torch.ones(1, 2)).shape == (1, 2)
    with pytest.raises(CannotRebuildError, match="ZeroDivision"):
        models[""](torch.ones(1, 2))


def test_sources_and_names():
    models, description = through_json(nn.Sequential(Net(), nn.ReLU()), also=[free_forward])
    names = {entry["name"] for entry in description.sources}
    assert {f"{__name__}:Net", f"{__name__}:Config", f"{__name__}:free_forward"} <= names
    assert __name__ in names
    assert f"{__name__}:Net" in needed_names(description.node)
    assert "torch.nn.modules.linear:Linear" in needed_names(description.node)
    assert {file["module"] for file in description.node["files"]} >= {__name__}
    assert isinstance(models[""][0], Net)


@pytest.mark.parametrize(
    "spoil",
    ids=range(9),
    argvalues=[
        lambda node: node.pop("modules"),
        lambda node: node.update(modules=[{"$": "dict", "v": []}]),
        lambda node: node["modules"][0].update(children=[["x", {"$": "submodule", "i": 99}]]),
        lambda node: node["modules"][0].update(children=[["x", {"$": "unheard"}]]),
        lambda node: node["modules"][0].update(children=3),
        lambda node: node["modules"][0].update(hooks=[["_parameters", [[0, None]]]]),
        lambda node: node["modules"][0].update(parametrized=True),
        lambda node: node["modules"][0].update(parameters=[["weight", {"$": "tensor", "i": 9**9}]]),
        lambda node: node.update({"$": "other"}),
    ],
)
def test_bad_descriptions_are_refused(spoil):
    table = TensorTable()
    node = json.loads(json.dumps(describe({"": nn.Linear(2, 2)}, table).node))
    storages, refs = table.export()
    spoil(node)
    with pytest.raises(CorruptIncidentError):
        rebuild(node, TensorLoader(refs, lambda n: storages[n].data), Trust())


def test_library_models_need_no_trust():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    models, _ = through_json(encoder, Trust())
    assert_same(encoder, models[""], torch.randn(2, 3, 8))


def test_modules_that_were_never_registered():
    holder = nn.Module()
    holder.hidden = {"a": [nn.Linear(2, 2)]}
    twin = rebuilt(holder)
    assert torch.equal(twin.hidden["a"][0].weight, holder.hidden["a"][0].weight)
    assert list(twin.parameters()) == []


def test_names_that_no_replay_accepts_are_missing_from_the_start():
    encoder = describing.ReplayableEncoder(TensorTable())
    value = {"clock": time.time, "load": torch.load, "act": torch.relu, "it": string.Template("x")}
    node = encoder.encode(value, "batch")
    made = Decoder(lambda i: pytest.fail("no tensors"), Trust()).decode(node)
    assert made["act"] is torch.relu
    assert [note["what"].partition(":")[0] for note in encoder.not_captured] == [
        "batch['clock']",
        "batch['load']",
        "batch['it']",
    ]
    for name in ("clock", "load", "it"):
        with pytest.raises(CannotRebuildError, match=name):
            made[name]()


def test_tags_of_our_own_are_documented():
    text = (Path(__file__).parents[1] / "docs/structure.md").read_text(encoding="utf-8")
    own = set(ModuleDecoder.readers) - set(Decoder.readers)
    assert {"submodule", "weakref", "handle", "apply", "uninitialized"} == own
    keys = {"class", "missing", "inside", "autocast", "parametrized", "tensor_hooks", "transient"}
    assert all(f"`{word}`" in text or f'"{word}"' in text for word in own | keys)
