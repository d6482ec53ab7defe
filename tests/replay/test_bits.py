"""Bits of tensors of every kind."""

from __future__ import annotations

import pytest
import torch

from replay.bits import same_bits, to_words, word_type


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(3, 4)[:, ::2],
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, 3).to_sparse(),
        torch.randn(4).to(torch.float8_e5m2),
        torch.randn(4).bfloat16(),
    ],
    ids=str,
)
def test_equal_to_a_copy(tensor):
    assert same_bits(tensor, tensor.clone())
    words = to_words(tensor)
    assert words.ndim == 1
    assert words.dtype.kind == "u"


def test_bits_decide_not_values():
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    nan = torch.tensor(float("nan"))
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.zeros(2), torch.zeros(3))
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))


def test_parts_of_complex_numbers_are_counted_as_their_type():
    tensor = torch.tensor([1 + 2j])
    assert word_type(tensor) == "float32"
    assert to_words(tensor).view("float32").tolist() == [1.0, 2.0]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantized_tensors_are_compared_by_their_integers():
    tensor = torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8)
    assert same_bits(tensor, tensor.clone())
    assert word_type(tensor) == "int8"
