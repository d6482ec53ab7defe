"""Nodes carry the mark of the operator that made them."""

from __future__ import annotations

import torch

from replay.backward import NodeMap, accumulated


def test_first_mark_of_a_node_stays():
    y = torch.ones(2, requires_grad=True).exp()
    nodes = NodeMap()
    nodes.see(y, 4)
    nodes.see(y, 9)
    assert nodes.operator(y.grad_fn) == 4


def test_marks_of_another_scan_do_not_count():
    y = torch.ones(2, requires_grad=True).exp()
    NodeMap().see(y, 4)
    later = NodeMap()
    assert later.operator(y.grad_fn) is None
    later.see(y, 7)
    assert later.operator(y.grad_fn) == 7


def test_node_without_mark_is_known_by_those_below_it():
    x = torch.ones(2, requires_grad=True).exp()
    nodes = NodeMap()
    nodes.see(x, 1)
    assert nodes.operator((x * 2).sin().grad_fn) == 1


def test_tensor_without_node_or_maker_is_passed_over():
    nodes = NodeMap()
    nodes.see(torch.ones(2), 3)
    y = torch.ones(2, requires_grad=True).exp()
    nodes.see(y, -1)
    assert nodes.operator(y.grad_fn) is None


def test_accumulating_node_knows_its_tensor():
    x = torch.ones(2, requires_grad=True)
    node = x.exp().grad_fn
    assert accumulated(node.next_functions[0][0]) is x
    assert accumulated(node) is None
