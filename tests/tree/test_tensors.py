"""Tensors as nodes: flags, classes, attributes, references to what is known."""

import pytest
import torch

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree import Decoder, Encoder, TensorTable


class Image(torch.Tensor):
    """Like those of torchvision: methods, attributes, and a function override."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert "size" not in str(func), "asked while it was recorded"
        return super().__torch_function__(func, types, args, kwargs or {})


class Weight(torch.nn.Parameter):
    pass


def test_one_object_again(travel):
    t = torch.ones(2)
    back = travel({"a": t, "b": [t, t[1:]]})
    assert back["a"] is back["b"][0]
    back["a"][1] = 5
    assert back["b"][1].item() == 5


def test_a_subclass_with_attributes(travel):
    image = torch.arange(3.0).as_subclass(Image)
    image.box = [image]
    image.unit = "px"
    back = travel(image)
    assert type(back) is Image
    assert back.unit == "px"
    assert back.box[0] is back
    assert back.as_subclass(torch.Tensor).tolist() == [0, 1, 2]


def test_attributes_of_plain_tensors(travel):
    t = torch.ones(1)
    t.mask = torch.zeros(1)
    back = travel([t, t])
    assert back[0] is back[1]
    assert back[0].mask.item() == 0


@pytest.mark.parametrize("kind", [torch.nn.Parameter, Weight])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_parameters(travel, kind, requires_grad):
    value = kind(torch.ones(2), requires_grad=requires_grad)
    back = travel([value, value])
    assert type(back[0]) is kind
    assert back[0] is back[1]
    assert back[0].is_leaf
    assert back[0].requires_grad is requires_grad


@pytest.mark.parametrize(
    "view",
    [lambda t: t, lambda t: t[1:], lambda t: t[:, :1].expand(4, 5), lambda t: t.T, lambda t: t[0]],
    ids=["same", "rows", "expanded", "transposed", "row"],
)
def test_made_by_autograd_may_be_changed_in_place(travel, view):
    leaf = torch.arange(12.0).reshape(4, 3).requires_grad_()
    value = view(leaf * 2)
    back = travel([leaf, value])
    assert back[0].is_leaf
    assert back[0].requires_grad
    assert not back[1].is_leaf
    assert back[1].requires_grad
    assert back[1].stride() == value.stride()
    assert torch.equal(back[1], value)
    if 0 not in value.stride():
        back[1].relu_()
    assert "leaf" not in travel.node["v"][0]


def test_known_parameters_and_modules():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    names = {
        id(model[0].weight): "net:0.weight",
        id(model[1].running_mean): "net:1.running_mean",
    }
    modules = {id(model): "net:", id(model[0]): "net:0"}
    table = TensorTable()
    encoder = Encoder(table, parameters=names, modules=modules)
    value = [model[0].weight, model[1].running_mean, model, model[0], model[0], model[1]]
    node = encoder.encode(value)
    assert len(table) == 0
    known = {"net:": model, "net:0": model[0], "net:1": model[1]}
    back = Decoder(None, None, known).decode(node)
    assert all(a is b for a, b in zip(back[:5], value[:5], strict=True))
    assert [note["why"] for note in encoder.not_captured] == [
        "a module that is not part of a recorded one"
    ]
    with pytest.raises(CannotRebuildError, match=r"net:0\.weight"):
        Decoder(None, None).decode(node["v"][0])
    held = Decoder(None, None).decode(node["v"][2])
    assert "not rebuilt" in repr(held)


def test_a_root_parameter():
    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

    root = Root()
    encoder = Encoder(TensorTable(), parameters={id(root.scale): ":scale"})
    node = encoder.encode(root.scale)
    assert Decoder(None, None, {":": root}).decode(node) is root.scale


def test_local_subclass_is_said(travel):
    class Local(torch.Tensor):
        pass

    travel(torch.ones(1).as_subclass(Local))
    assert travel.why == ["its class cannot be imported under its own name"]


def test_class_that_is_no_tensor(travel, resolver):
    node = {"$": "tensor", "i": 0, "class": "builtins:dict"}
    with pytest.raises(CannotRebuildError, match="no tensor"):
        Decoder(lambda _: torch.ones(1), resolver).decode(node)
    with pytest.raises(CorruptIncidentError):
        Decoder(lambda _: torch.ones(1), resolver).decode({"$": "tensor", "i": "0"})
    with pytest.raises(CorruptIncidentError):
        Decoder(lambda _: torch.ones(1), resolver).decode({"$": "tensor", "i": True})


def test_names_say_where(travel):
    travel({"x": [torch.ones(1)], 3: (torch.ones(1),)}, "args[0]")
    assert [ref.name for ref in travel.refs] == ["args[0]['x'][0]", "args[0][3][0]"]


def test_nothing_of_the_graph_is_changed(travel):
    x = torch.ones(2, requires_grad=True)
    y = (x * 3).exp()
    travel([x, y, y.detach()])
    y.sum().backward()
    assert x.grad is not None
    assert y._version == 0
