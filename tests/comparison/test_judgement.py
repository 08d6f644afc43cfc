"""Outputs are judged as their kind asks for: floats by a share, quantised numbers in steps, others by equality."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.comparison.judgement import Bounds, ReferenceOutput, Tolerance, judge
from pipeline.errors import BuildError

BOUNDS = Bounds()


def problem(output: Any, expected: Any, *, bounds: Bounds = BOUNDS, **options: Any) -> str:
    return judge(np.asarray(output), ReferenceOutput(np.asarray(expected), **options), bounds).problem


def test_floats_may_differ_by_a_share_of_the_largest_value() -> None:
    assert not problem([1.0, 1000.05], [1.0, 1000.0])
    assert problem([1.0, 1000.2], [1.0, 1000.0]) == "by 0.0002 of its largest value; allowed is 0.0001"


def test_a_tiny_float_may_differ_by_what_the_reference_itself_scatters_by() -> None:
    expected, output, wrong = np.array([1e-9, -2e-9]), np.array([1.4e-9, -2e-9]), np.array([9e-9, -2e-9])
    scattered = np.array([1.3e-9, -2.1e-9])
    assert problem(output, expected)
    assert not problem(output, expected, opinions=[scattered])
    assert problem(wrong, expected, opinions=[scattered])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_quantised_integers_are_judged_in_steps(dtype: Any) -> None:
    expected = np.tile(np.arange(100, dtype=dtype), 20)
    near, far, remote = (expected.copy() for _ in range(3))
    near[::2] += 1
    near[7] += 1
    far[7] += 3
    remote[5:9] += 2
    assert not problem(near, expected, step=1.0)
    assert problem(far, expected, step=1.0) == "by 3 steps; allowed are 2"
    assert problem(remote, expected, step=1.0) == "by more than one step at 0.20% of its elements; allowed are 0.10%"
    assert not problem(far, expected, step=1.0, bounds=Bounds.of(Tolerance.of("3steps")))


def test_one_of_few_elements_may_be_two_steps_away() -> None:
    assert not problem(np.array([5, 9], np.int8), np.array([5, 7], np.int8), step=1.0)


def test_unsigned_steps_do_not_wrap_around() -> None:
    assert problem(np.array([255], np.uint8), np.array([0], np.uint8), step=1.0).startswith("by 255 steps")


def test_floats_that_stand_for_integers_are_judged_in_steps_of_their_scale() -> None:
    expected = np.array([0.5, -1.0, 3.5], np.float32)
    assert not problem(expected + np.float32(0.5), expected, step=0.5)
    assert problem(expected + np.float32(2), expected, step=0.5) == "by 4 steps; allowed are 2"


def test_more_steps_are_allowed_where_the_reference_has_kernels_that_differ() -> None:
    expected = np.arange(100, dtype=np.uint8)
    other, output, wrong = expected.copy(), expected.copy(), expected.copy()
    other[3], output[9], wrong[9] = 10, 20, 40
    assert problem(output, expected, step=1.0)
    assert not problem(output, expected, step=1.0, opinions=[other])
    assert problem(wrong, expected, step=1.0, opinions=[other]) == "by 31 steps; allowed are 14"


def test_a_class_may_be_another_one_only_where_two_are_tied() -> None:
    expected, tied, other = (np.array([values], np.int8) for values in ([60, 62, 0], [62, 61, 0], [63, 60, 0]))
    assert not problem(tied, expected, step=1.0)
    assert not problem(other, expected, step=1.0, bounds=Bounds(steps=3, remote=1.0))
    expected, other = np.array([50, 60], np.int8), np.array([55, 54], np.int8)
    allowed = Bounds(steps=6, remote=1.0)
    assert problem(other, expected, step=1.0, bounds=allowed) == "in its largest value, which is at 0, not at 1"


def test_numbers_that_name_something_are_equal_or_as_often_unequal_as_the_reference_with_itself() -> None:
    expected = np.arange(100)
    output, other = expected.copy(), expected.copy()
    output[3], other[50] = 4, 51
    assert problem(output, expected) == "at 1.00% of its elements"
    assert not problem(output, expected, opinions=[other])
    assert problem(np.array([True]), np.array([False]))


def test_a_share_that_a_user_gives_is_enough_for_integers() -> None:
    expected, output = np.array([100, 0], np.uint8), np.array([104, 0], np.uint8)
    assert problem(output, expected, step=1.0)
    assert not problem(output, expected, step=1.0, bounds=Bounds.of(Tolerance.of(0.05)))


def test_what_is_not_finite_is_equal_in_place() -> None:
    assert not problem([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0])
    assert "not finite" in problem([np.nan, 1.0], [1.0, 1.0])
    # Where the reference itself has no fixed places for it, its scatter says nothing.
    assert problem([9.0, 1.0], [1.0, 1.0], opinions=[np.array([np.nan, 1.0])])


@pytest.mark.parametrize(
    ("text", "share", "steps"),
    [(None, None, None), (0.01, 0.01, None), ("1e-3", 1e-3, None), ("3steps", None, 3), ("1 step", None, 1),
     ("0.001,4steps", 1e-3, 4), ("4steps, 0.001", 1e-3, 4)],
)  # fmt: skip
def test_tolerances_are_read(text: Any, share: float | None, steps: int | None) -> None:
    assert Tolerance.of(text) == Tolerance(share, steps)


@pytest.mark.parametrize("text", ["", "much", "-1", "nan", "2 stepss", "1e-3;2steps", "-2steps", -1.0])
def test_what_is_no_tolerance_is_refused(text: Any) -> None:
    with pytest.raises(BuildError, match=r"tolerance is .*; it must be a share of the largest output"):
        Tolerance.of(text)


def noise(scale: float, seed: int, size: int = 1000) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, size)


def test_two_results_that_are_equally_near_to_real_numbers_differ_by_rounding() -> None:
    real = noise(40, 0)
    expected, output, worse, wrong = (
        np.rint(real + noise(scale, seed)) for scale, seed in ((3, 1), (3, 2), (4, 3), (3, 2))
    )
    wrong[7] += 40
    for step, kind in ((1.0, "steps"), (None, "largest value")):
        assert kind in problem(output, expected, step=step)
        assert not problem(output, expected, step=step, real=real)
        assert kind in problem(worse, expected, step=step, real=real)
        assert kind in problem(wrong, expected, step=step, real=real)


def test_fewer_elements_leave_more_to_chance() -> None:
    real, expected = np.zeros(4), np.array([2.0, -2.0, 2.0, -2.0])
    assert not problem(expected * 1.9, expected, step=0.1, real=real)
    assert problem(np.tile(expected * 1.9, 50), np.tile(expected, 50), step=0.1, real=np.tile(real, 50))


def test_real_numbers_excuse_neither_another_shape_nor_what_is_not_finite() -> None:
    expected = np.array([1.0, 2.0])
    assert problem([1.0, 2.0, 3.0], expected, real=expected)
    assert problem([np.nan, 2.0], expected, real=expected)


@pytest.mark.parametrize(
    ("dtype", "step", "error", "steps", "allowed"),
    [("int8", 1.0, 1, 1.0, 2.0), ("int8", 1.0, 5, 5.0, 5.0), ("float32", None, 5, None, 0.625)],
)
def test_what_was_accepted_is_allowed(
    dtype: str, step: float | None, error: int, steps: float | None, allowed: float
) -> None:
    expected = np.arange(9, dtype=dtype)
    judgement = judge(
        expected + expected.dtype.type(error), ReferenceOutput(expected, step, "", [expected + 8]), BOUNDS
    )
    assert (judgement.problem, judgement.steps, judgement.allowed) == ("", steps, allowed)


@pytest.mark.parametrize(
    ("error", "steps", "allowed"),
    # Told in steps as long as they are within the bound of these, else as the share that accepts it.
    [(0.0, 0.0, 2.0), (1.0, 1.0, 2.0), (2.0, 2.0, 2.0), (2.5, None, 0.05), (5.0, None, 0.05)],
)
def test_what_a_share_accepts_is_told_in_steps_if_these_suffice(
    error: float, steps: float | None, allowed: float
) -> None:
    expected = ReferenceOutput(np.array([100.0, 0.0]), step=1.0)
    judgement = judge(np.array([100.0 + error, 0.0]), expected, Bounds.of(Tolerance.of(0.05)))
    assert (judgement.problem, judgement.steps, judgement.allowed) == ("", steps, allowed)
