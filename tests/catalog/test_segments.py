"""Tensors belong to the step whose inputs, outputs or gradients they are."""

from flightrec.catalog.segments import steps_of_tensors


def test_every_way_of_naming_a_tensor_is_followed():
    control = {"step": 5, "batch": {"$": "list", "v": [{"$": "tensor", "i": 0}, 1]}, "calls": []}
    segment = {
        "step": 7,
        "batch": {"$": "dict", "v": [["x", {"$": "tensor", "i": 2}]]},
        "loss": {"tensor": 3, "after_call": 1},
        "gradients": [{"parameter": "w", "hash": "", "tensor": 4}, {"tensor": None}],
        "backwards": [{"gradients": [{"call": 0, "leaf": "", "tensor": 5}]}],
        "calls": [
            {
                "outputs": [{"leaf": "", "tensor": 6}],
                "rng": {"torch": {"$": "tensor", "i": 7}},
                "state": {"buffers": {":mean": 8}, "attributes": {"": {"n": 9}}},
            }
        ],
    }
    assert steps_of_tensors(
        {"controls": [control], "segment": segment, "model": {"roots": None}}
    ) == {
        0: 5,
        **dict.fromkeys(range(2, 9), 7),
    }


def test_what_is_shared_belongs_to_the_newest():
    def segment(step):
        return {"step": step, "batch": {"$": "tensor", "i": 0}}

    manifest = {"controls": [segment(5), segment(6)], "segment": segment(7)}
    assert steps_of_tensors(manifest | {"model": {"roots": None}}) == {0: 7}


def test_weights_belong_to_no_step():
    call = {"state": {"buffers": {":mean": 0, ":count": 1}, "attributes": {}}}
    roots = {"$": "roots", "v": [["", {"buffers": [["mean", {"$": "tensor", "i": 0}]]}]]}
    manifest = {"controls": [], "segment": {"step": 7, "calls": [call]}, "model": {"roots": roots}}
    assert steps_of_tensors(manifest) == {1: 7}
