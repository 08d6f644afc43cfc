"""Comparison of outputs with a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core import packed_value


@dataclass(frozen=True)
class OutputDifference:
    """Distance of one output from the reference's."""

    largest_error: float
    """Largest absolute difference of the elements that are finite; infinite if there is a `mismatch`."""
    largest_value: float
    """Largest absolute value of the reference, where that is finite."""
    mismatch: str = ""
    """Reason that elements cannot be compared, such as ``"is float32[2], but float32[3] by the reference"``; empty if
    they can."""

    @property
    def relative(self) -> float:
        """Error as a share of the largest value."""
        return self.largest_error / self.largest_value if self.largest_value else self.largest_error

    def within(self, tolerance: float) -> bool:
        """Check the error against a share of the largest value."""
        return self.relative <= tolerance


def compare_output(
    output: Any, expected: Any, reference: str = "the reference", *, same_dtype: bool = False
) -> OutputDifference:
    """Compare an output with the reference's.

    Infinities and NaN have to be the same ones at the same positions; they do not count otherwise. Messages call
    `expected` the output of `reference`. `same_dtype` asks for equal dtypes, too; a reference is often computed in a
    wider one.
    """
    output, expected = _unpack(output), _unpack(expected)
    if isinstance(expected, list | dict) or _is_text(expected):
        return _compare_values(output, expected, reference)
    first, second = np.asarray(output), np.asarray(expected)
    if first.shape != second.shape or (same_dtype and first.dtype != second.dtype):
        mismatch = f"is {_describe(first)}, but {_describe(second)} by {reference}"
        return OutputDifference(np.inf, _largest(_real(second)), mismatch)
    # In double precision, where the difference of any two narrower numbers is exact enough.
    first, second = _real(first), _real(second)
    value = _largest(second)
    if not np.array_equal(_mask_finite(first), _mask_finite(second), equal_nan=True):
        return OutputDifference(np.inf, value, f"is not finite where it is by {reference}, or the reverse")
    # Infinity less infinity would warn, and is no error here.
    error = np.subtract(first, second, out=np.zeros_like(second), where=np.isfinite(second))
    return OutputDifference(_largest(error), value)


def _unpack(value: Any) -> Any:
    is_packed = isinstance(value, np.ndarray) and packed_value.is_packed_array(value)
    return packed_value.unpack(value) if is_packed else value


def _is_text(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "OUS"


def _compare_values(value: Any, expected: Any, reference: str) -> OutputDifference:
    """Compare lists and maps part by part, texts directly."""
    if isinstance(value, dict) and isinstance(expected, dict) and value.keys() == expected.keys():
        return overall(compare_output(value[key], part, reference) for key, part in expected.items())
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return overall(compare_output(*pair, reference) for pair in zip(value, expected, strict=True))
    if _is_text(value) and _is_text(expected) and np.array_equal(np.asarray(value), np.asarray(expected)):
        return OutputDifference(0.0, 0.0)
    return OutputDifference(np.inf, 0.0, f"is another value than that by {reference}")


def compare_outputs(
    outputs: Mapping[str, Any],
    expected: Mapping[str, Any],
    reference: str = "the reference",
    *,
    same_dtype: bool = False,
) -> dict[str, OutputDifference]:
    """Compare the expected outputs by name; see `compare_output`."""
    return {
        name: compare_output(outputs[name], array, reference, same_dtype=same_dtype) for name, array in expected.items()
    }


def overall(differences: Iterable[OutputDifference]) -> OutputDifference:
    """Return the largest error beside the largest value of all outputs."""
    all_differences = list(differences)
    return OutputDifference(
        max((difference.largest_error for difference in all_differences), default=0.0),
        max((difference.largest_value for difference in all_differences), default=0.0),
        next((difference.mismatch for difference in all_differences if difference.mismatch), ""),
    )


def _describe(array: NDArray[np.generic]) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _real(array: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.asarray(array, np.float64)


def _mask_finite(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return infinities and NaN where they are, and zeros elsewhere."""
    return np.where(np.isfinite(array), 0, array)


def _largest(array: NDArray[np.float64]) -> float:
    """Return the largest finite absolute value, else 0."""
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
