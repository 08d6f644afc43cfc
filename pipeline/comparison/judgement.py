"""Judgement: agreement of an output with a reference, within a tolerance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.comparison.compare import OutputDifference, compare_output
from pipeline.core.numerics import check_tolerance
from pipeline.core.packed_value import is_packed_array
from pipeline.errors import BuildError

STEPS = 2
"""Steps of a quantised output: two kernels may round to neighbours twice, in the last operators and before them."""

_STEPS = re.compile(r"(\d{1,4}) ?steps?", re.ASCII)


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of an output; the model decides None."""

    share: float | None = None
    """Allowed error of floats, as a share of the output's largest value."""
    steps: int | None = None
    """Allowed error of quantised integers, in steps of their scale."""

    @staticmethod
    def of(value: float | str | Tolerance | None) -> Tolerance:
        """Read a tolerance such as ``0.001``, ``"2steps"`` or ``"0.001,2steps"``; `BuildError` if it is none."""
        if value is None or isinstance(value, Tolerance):
            return value or Tolerance()
        if not isinstance(value, str):
            check_tolerance(value)
            return Tolerance(float(value))
        share, steps = None, None
        for part in value.split(","):
            if match := _STEPS.fullmatch(part.strip()):
                steps = int(match[1])
            else:
                share = _share(part, value)
        return Tolerance(share, steps)


def _share(part: str, text: str) -> float:
    try:
        share = float(part)
        check_tolerance(share)
    except (ValueError, BuildError):
        raise BuildError(
            f"tolerance is {text!r}; it must be a share of the largest output, such as 0.001, steps of quantised "
            "integers, such as 2steps, or both: 0.001,2steps"
        ) from None
    return share


SHARE = 1e-4
"""Allowed share of float errors. Libraries add up in different orders; faults differ by far more."""

REMOTE = 1e-3
"""Share of a quantised output's elements that may be more than one step away."""

SPREAD = 2.0
"""Factor on the scatter of the reference's own results. Our rounding is one more draw from them."""

_CHANCE = 3.0
"""Standard deviations, roughly, by which means over few elements may differ."""

Array = NDArray[np.generic]

# A float that stands for an integer is that number times the scale, rounded to 24 bits.
_SLACK = 1e-3


@dataclass(frozen=True)
class Bounds:
    """Allowed errors of an output."""

    share: float = SHARE
    """Largest error of floats, as a share of the largest value."""
    steps: float = STEPS
    """Largest error of quantised numbers, in steps."""
    remote: float = REMOTE
    """Share of quantised elements that may be further away than one step."""
    any_share: bool = False
    """True if `share` is enough for integers, too, since a user said so."""

    @staticmethod
    def of(tolerance: Tolerance, share: float = SHARE) -> Bounds:
        """Return the bounds of a user's tolerance; `share` is the default."""
        steps = STEPS if tolerance.steps is None else tolerance.steps
        # Who allows many steps expects many elements to be away.
        remote = REMOTE if steps <= STEPS else 1.0
        chosen = share if tolerance.share is None else tolerance.share
        return Bounds(chosen, steps, remote, any_share=tolerance.share is not None)


@dataclass(frozen=True)
class ReferenceOutput:
    """Expected output and its quantisation."""

    array: Array
    step: float | None = None
    """The distance of two neighbouring numbers of a quantised output: 1 for integers, the scale for floats."""
    reference: str = "the reference"
    """The name of what made it."""
    opinions: Sequence[Array] = ()
    """Other results of the reference: by other kernels, or of an input that is rounded differently. Their scatter is no
    error."""
    real: Array | None = None
    """The output of a quantised model in real numbers. Two results that are equally near to it differ by rounding."""


@dataclass(frozen=True)
class Judgement:
    """One output beside the reference's."""

    difference: OutputDifference
    steps: float | None = None
    """Largest error of a quantised output, in steps."""
    problem: str = ""
    """Error above the allowed one, such as ``"by 7 steps; allowed are 2"``; empty without any."""
    allowed: float = 0.0
    """The largest error that was accepted: in steps where there are `steps`, else as a share of the largest value."""


def judge(output: Array, expected: ReferenceOutput, bounds: Bounds) -> Judgement:
    """Judge an output beside the reference's."""
    judgement = _judge(output, expected, bounds)
    error = judgement.difference.relative if judgement.steps is None else judgement.steps
    if judgement.problem and not judgement.difference.mismatch and _is_as_near(output, expected):
        judgement = replace(judgement, problem="")
    # What was accepted is allowed: a verdict never contradicts what follows from it.
    allowed = bounds.share if judgement.steps is None else bounds.steps
    return replace(judgement, allowed=allowed if judgement.problem else max(allowed, error))


def _is_as_near(output: Array, expected: ReferenceOutput) -> bool:
    """Compare distances to real numbers with the reference's, except for chance."""
    if expected.real is None or expected.real.shape != output.shape or not output.size:
        return False
    ours, theirs = (
        np.abs(np.asarray(array, np.float64) - np.asarray(expected.real, np.float64))
        for array in (output, expected.array)
    )
    # By the mean, which fewer elements leave more to chance, and by the largest, which one wrong element raises.
    chance = 1 + _CHANCE / np.sqrt(output.size)
    is_near = np.square(ours).mean() <= chance**2 * np.square(theirs).mean()
    return bool(is_near and ours.max() <= SPREAD * theirs.max())


def _judge(output: Array, expected: ReferenceOutput, bounds: Bounds) -> Judgement:
    difference = compare_output(output, expected.array, expected.reference)
    if difference.mismatch:
        return Judgement(difference, problem=difference.mismatch)
    # Text, sequences and maps, which are compared item by item.
    if is_packed_array(output):
        return Judgement(difference, problem=_share_problem(difference, expected, bounds))
    by_share = _share_problem(difference, expected, bounds)
    is_float = expected.array.dtype.kind not in "iub"
    # Floats that are quantised may be judged either way; integers by a share only if a user gives one.
    if not by_share and (is_float or bounds.any_share):
        steps = None if expected.step is None else _steps_apart(output, expected.array, expected.step)[0]
        # Who allows a share is told one.
        return Judgement(difference, None if steps is None or steps > bounds.steps + _SLACK else steps)
    if expected.step is not None:
        return Judgement(difference, *_step_problem(output, expected, expected.step, bounds))
    return Judgement(difference, problem=by_share if is_float else _unequal_problem(output, expected))


def _share_problem(difference: OutputDifference, expected: ReferenceOutput, bounds: Bounds) -> str:
    scatter = max((compare_output(opinion, expected.array).largest_error for opinion in expected.opinions), default=0.0)
    # An infinite scatter says that it is not even finite at the same places: nothing to measure by.
    floor = SPREAD * scatter if np.isfinite(scatter) else 0.0
    if difference.within(bounds.share) or difference.largest_error <= floor:
        return ""
    return f"by {difference.relative:.3g} of its largest value; allowed is {bounds.share:.3g}"


def _step_problem(output: Array, expected: ReferenceOutput, step: float, bounds: Bounds) -> tuple[float, str]:
    """Return the largest error in steps, and the problem."""
    largest, remote = _steps_apart(output, expected.array, step)
    scatter = [_steps_apart(opinion, expected.array, step) for opinion in expected.opinions]
    allowed = max([bounds.steps, *(SPREAD * distance[0] for distance in scatter)])
    allowed_remote = max([bounds.remote, *(SPREAD * distance[1] for distance in scatter)])
    if largest > allowed + _SLACK:
        return largest, f"by {largest:.4g} steps; allowed are {allowed:.4g}"
    # One element of few is more than a thousandth of them.
    if remote * output.size > max(1.0, allowed_remote * output.size):
        return largest, f"by more than one step at {remote:.2%} of its elements; allowed are {allowed_remote:.2%}"
    return largest, _decision_problem(output, expected.array, step * (allowed + _SLACK))


def _steps_apart(first: Array, second: Array, step: float) -> tuple[float, float]:
    """Return the largest error in steps, and the share above one."""
    with np.errstate(invalid="ignore"):
        steps = np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64)) / step
    steps = np.where(np.isfinite(steps), steps, 0.0)
    return float(steps.max(initial=0.0)), float(np.mean(steps > 1 + _SLACK)) if steps.size else 0.0


def _decision_problem(output: Array, expected: Array, tie: float) -> str:
    """Describe a chosen class ranked lower by the reference, ties aside."""
    # Scores have one axis that is longer than 1; of maps, the axis of the classes is anybody's guess.
    scores, reference_scores = np.squeeze(output), np.asarray(np.squeeze(expected), np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(reference_scores).all():
        return ""
    choice, best = int(scores.argmax()), int(reference_scores.argmax())
    if reference_scores[best] - reference_scores[choice] <= tie:
        return ""
    return f"in its largest value, which is at {choice}, not at {best}"


def _unequal_problem(output: Array, expected: ReferenceOutput) -> str:
    """Describe unequal counts, indices or names."""
    unequal = _unequal_share(output, expected.array)
    allowed = max((SPREAD * _unequal_share(opinion, expected.array) for opinion in expected.opinions), default=0.0)
    return "" if unequal <= allowed else f"at {unequal:.2%} of its elements"


def _unequal_share(first: Array, second: Array) -> float:
    # Results whose shape depends on values cannot be compared element by element.
    return float(np.mean(first != second)) if first.shape == second.shape and second.size else 0.0
