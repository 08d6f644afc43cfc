"""Outputs are compared in one way: shapes, NaN, infinities, and errors beside the largest value."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from pipeline.comparison.compare import OutputDifference, compare_output, compare_outputs, overall

NAN, INF = math.nan, math.inf


def test_equal_arrays_do_not_differ() -> None:
    difference = compare_output([1.0, -4.0], [1.0, -4.0])
    assert difference == OutputDifference(0.0, 4.0)
    assert difference.within(0.0)


def test_the_error_is_a_share_of_the_largest_value_of_the_reference() -> None:
    difference = compare_output([1.5, -100.0], [1.0, -50.0])
    assert (difference.largest_error, difference.largest_value, difference.relative) == (50.0, 50.0, 1.0)
    assert difference.within(1.0)
    assert not difference.within(0.99)


def test_where_the_reference_is_nothing_but_zeros_the_error_counts_itself() -> None:
    assert compare_output([0.25], [0.0]).relative == 0.25


def test_equal_infinities_and_nan_do_not_count() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        difference = compare_output([NAN, INF, -INF, 2.0], [NAN, INF, -INF, 1.0])
    assert difference == OutputDifference(1.0, 1.0)


@pytest.mark.parametrize("output", [[NAN, 1.0], [1.0, 1.0], [-INF, 1.0], [INF, NAN]])
def test_what_is_not_finite_on_one_side_is_a_mismatch(output: list[float]) -> None:
    difference = compare_output(output, [INF, 1.0], "the unsplit model")
    assert difference.mismatch == "is not finite where it is by the unsplit model, or the reverse"
    assert not difference.within(1e300)


def test_other_shapes_are_a_mismatch_even_where_they_would_broadcast() -> None:
    difference = compare_output(np.zeros((1, 3), np.float32), np.zeros(3, np.float32), "PyTorch")
    assert difference.mismatch == "is float32[1, 3], but float32[3] by PyTorch"
    assert not difference.within(1e300)


def test_dtypes_are_compared_if_asked_for() -> None:
    output, expected = np.ones(2, np.float16), np.ones(2, np.float32)
    assert compare_output(output, expected).within(0.0)
    strict = compare_output(output, expected, "PyTorch", same_dtype=True)
    assert strict.mismatch == "is float16[2], but float32[2] by PyTorch"


def test_unsigned_numbers_do_not_wrap_around() -> None:
    assert compare_output(np.array([0], np.uint8), np.array([1], np.uint8)).largest_error == 1.0


def test_booleans_differ_by_one() -> None:
    assert compare_output(np.array([True, False]), np.array([True, True])).relative == 1.0


def test_empty_outputs_are_equal() -> None:
    assert compare_output(np.zeros((0, 3)), np.zeros((0, 3))) == OutputDifference(0.0, 0.0)


def test_several_outputs_are_compared_by_name() -> None:
    differences = compare_outputs({"y": [1.0], "z": [0.0], "inner": [7.0]}, {"y": [1.0], "z": [3.0]})
    assert differences == {"y": OutputDifference(0.0, 1.0), "z": OutputDifference(3.0, 3.0)}


def test_over_all_outputs_the_largest_error_stands_beside_the_largest_value() -> None:
    total = overall([OutputDifference(1.0, 2.0), OutputDifference(0.5, 100.0)])
    assert (total.largest_error, total.largest_value, total.relative) == (1.0, 100.0, 0.01)


def test_over_all_outputs_a_mismatch_of_one_remains() -> None:
    total = overall([OutputDifference(0.0, 1.0), compare_output([NAN], [1.0])])
    assert total.mismatch
    assert not total.within(1e300)
