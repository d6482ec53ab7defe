"""What operators do to their arguments."""

from __future__ import annotations

import math

import torch

from replay.schema import asks_for_infinity, behaviour, split, tensors_in

aten = torch.ops.aten
X, Y, Z = torch.ones(2), torch.ones(2), torch.ones(2)


def parted(func, *args, **kwargs):
    reads, changed = split(behaviour(func), args, kwargs)
    return [id(each) for each in reads], [id(each) for each in changed]


def ids(*tensors):
    return [id(each) for each in tensors]


def test_plain_operator_only_reads():
    assert parted(aten.add.Tensor, X, Y) == (ids(X, Y), [])


def test_in_place_operator_reads_what_it_changes():
    assert parted(aten.add_.Tensor, X, Y) == (ids(X, Y), ids(X))


def test_copy_and_out_do_not_look_at_what_was_there():
    assert parted(aten.copy_.default, X, Y) == (ids(Y), ids(X))
    assert parted(aten.add.out, X, Y, out=Z) == (ids(X, Y), ids(Z))


def test_lists_of_tensors_are_looked_into():
    assert parted(aten.cat.default, [X, Y]) == (ids(X, Y), [])
    assert parted(aten._foreach_add_.List, [X], [Y]) == (ids(X, Y), ids(X))
    assert list(tensors_in([X, None, (Y, 1)])) == [X, Y]


def test_batch_norm_writes_its_statistics_though_its_schema_does_not_say_so():
    mean, variance = torch.ones(2), torch.ones(2)
    args = (torch.ones(3, 2), X, Y, mean, variance, True, 0.1, 1e-5)
    reads, changed = split(behaviour(aten.native_batch_norm.default), args, {})
    assert ids(*changed) == ids(mean, variance)
    assert len(reads) == 5
    assert not behaviour(aten.native_batch_norm_backward.default).written


def test_values_that_were_asked_for():
    assert behaviour(aten.zeros_like.default).creates
    assert behaviour(aten.empty.memory_format).unwritten
    assert not behaviour(aten.masked_fill.Scalar).creates
    assert asks_for_infinity((X, Y, -math.inf), {})
    assert asks_for_infinity((X,), {"fill": math.nan})
    assert not asks_for_infinity((X, 1e30, 3), {})
