"""Operators that move elements about, against NumPy."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from pipeline.errors import ModelError
from tests.support.relay_programs import apply, random, results, signature


def test_space_to_batch_and_back() -> None:
    """Positions inside of a block become parts of the batch; what was padded is cropped again."""
    x = random(2, 4, 5, 3)
    output = apply("nn.space_to_batch_nd(%a, block_shape=[2, 3], paddings=[[1, 1], [0, 1]], pad_value=7f)", x)
    padded_image = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)), constant_values=7)
    reference = [padded_image[:, row::2, column::3] for row in range(2) for column in range(3)]
    np.testing.assert_array_equal(output, np.concatenate(reference))
    back = apply("nn.batch_to_space_nd(%a, block_shape=[2, 3], crops=[[1, 1], [0, 1]])", output)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(("time_axis", "batch"), [(1, 0), (0, 1), (2, 0)])
def test_sequences_are_reversed_up_to_their_ends(time_axis: int, batch: int) -> None:
    """A length beyond the last element counts as the whole."""
    x = random(3, 4, 5)
    lengths = np.array([1, 4, 2, 3][: x.shape[batch]], np.int32)
    output = apply(f"reverse_sequence(%a, %b, seq_axis={time_axis}, batch_axis={batch})", x, lengths)
    reference = x.copy()
    for row, length in enumerate(lengths):
        part = np.moveaxis(reference, (batch, time_axis), (0, 1))[row]
        part[:length] = part[:length][::-1].copy()
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_lies_behind_a_sequence_is_masked(axis: int) -> None:
    x, lengths = random(3, 4, 2), np.array([2, 0, 3, 1][: (4, 3)[axis]], np.int32)
    output = apply(f"sequence_mask(%a, %b, mask_value=-9f, axis={axis})", x, lengths)
    reference = np.moveaxis(x.copy(), axis, 0)
    for row, length in enumerate(lengths):
        reference[length:, row] = -9
    np.testing.assert_array_equal(output, np.moveaxis(reference, 0, axis))


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_triangles(k: int) -> None:
    x = random(2, 4, 5)
    np.testing.assert_array_equal(apply(f"trilu(%a, {k})", x), np.triu(x, k))
    np.testing.assert_array_equal(apply(f"trilu(%a, {k}, upper=False)", x), np.tril(x, k))


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_grids(indexing: Literal["ij", "xy"]) -> None:
    operands = {"a": random(3), "b": random(2, seed=1), "c": random(4, seed=2)}
    text = f'({signature(operands)}) {{ %0 = (%a, %b, %c); meshgrid(%0, indexing="{indexing}") }}'
    for output, reference in zip(
        results(text, operands), np.meshgrid(*operands.values(), indexing=indexing), strict=True
    ):
        np.testing.assert_array_equal(output, reference)


def test_advanced_indices() -> None:
    """Tensors of indices broadcast, count from the end below zero, and leave the axes behind them."""
    operands = {"a": random(4, 3, 5), "b": np.array([[0], [-1], [2]]), "c": np.array([2, 0])}
    (output,) = results(f"({signature(operands)}) {{ %0 = (%a, %b, %c); adv_index(%0) }}", operands)
    np.testing.assert_array_equal(output, operands["a"][operands["b"], operands["c"]])
    (output,) = results(f"({signature(operands)}) {{ %0 = (%a, %b); adv_index(%0) }}", operands)
    np.testing.assert_array_equal(output, operands["a"][operands["b"]])


def test_gaps_between_neighbours() -> None:
    x = random(2, 3, 2)
    reference = np.full((2, 7, 3), 0.5, np.float32)
    reference[:, ::3, ::2] = x
    np.testing.assert_array_equal(apply("nn.dilate(%a, strides=[1, 3, 2], dilation_value=0.5f)", x), reference)


def test_a_diagonal_is_set() -> None:
    x, diagonal = random(2, 3, 4), random(2, 3, seed=1)
    reference = x.copy()
    reference[:, range(3), range(1, 4)] = diagonal
    np.testing.assert_array_equal(apply("matrix_set_diag(%a, %b, k1=1, k2=1)", x, diagonal), reference)
    with pytest.raises(ModelError, match=r"diagonals 5 to 5 of the shape \(2, 3\) do not fit"):
        apply("matrix_set_diag(%a, %b, k1=5, k2=5)", x, diagonal)


def test_indices_become_places() -> None:
    indices = np.array([0, 7, 22, 59], np.int32)
    output = apply("unravel_index(%a, %s)", indices, s=np.array([3, 4, 5], np.int32))
    np.testing.assert_array_equal(output, np.unravel_index(indices, (3, 4, 5)))


def test_windows_that_slide() -> None:
    x = random(2, 3, 6, 5)
    output = apply("sliding_window(%a, axis=1, window_shape=[3, 2, 3], strides=[1, 2, 1])", x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2, 3), axis=(1, 2, 3))
    np.testing.assert_array_equal(output, windows[:, :, ::2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nn.space_to_batch_nd(%a, block_shape=[2, 2], paddings=[[0, 0], [0, 0]])", "does not divide into blocks"),
        ("nn.space_to_batch_nd(%a, block_shape=[2, 2], paddings=[[0, 0]])", "expected two numbers for each of 2 axes"),
        ("nn.batch_to_space_nd(%a, block_shape=[2, 2], crops=[[0, 0], [0, 0]])", "a batch of 2 does not divide"),
        ("reverse_sequence(%a, 3, seq_axis=1, batch_axis=0)", "do not fit the axes 1 and 0"),
        ("sliding_window(%a, axis=1, window_shape=[4, 1], strides=[1, 1])", "do not fit the shape"),
        ("sequence_mask(%a, 3, axis=2)", "along axis 2"),
    ],
)
def test_what_does_not_fit_is_refused(call: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        apply(call, random(2, 3, 3))


def test_an_order_is_inverted() -> None:
    order = np.array([3, 0, 4, 1, 2], np.int32)
    np.testing.assert_array_equal(apply("invert_permutation(%a)", order), np.argsort(order))


@pytest.mark.parametrize("side", ["left", "right"])
def test_values_are_searched_in_rows(side: Literal["left", "right"]) -> None:
    rows, values = np.sort(random(2, 9)), random(2, 5, seed=1)
    values[:, 0] = rows[:, 4]
    output = apply(f'searchsorted(%a, %b, right={side == "right"}, dtype="int64")', rows, values)
    reference = [np.searchsorted(row, wanted, side) for row, wanted in zip(rows, values, strict=True)]
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("rows", [2, 5])
def test_a_buffer_forgets_its_oldest(rows: int) -> None:
    x, buffer = random(3, rows), random(3, 4, seed=1)
    output = apply("nn.fifo_buffer(%a, %b, axis=1)", x, buffer)
    np.testing.assert_array_equal(output, np.concatenate([buffer, x], axis=1)[:, -4:])
