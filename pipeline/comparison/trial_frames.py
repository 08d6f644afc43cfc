"""Trial frames: random inputs of several kinds. A model may take only one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.comparison.random_frame import random_frame
from pipeline.core.plan.plan import TensorSpec

_INTEGERS = (None, 1, 16, 16_000, 0)
"""Values of integers, which may be indices, lengths, sizes or rates of samples; None for random ones."""

_LARGEST = 1e18
"""Beyond it squares leave float32, and differences say nothing of a model."""


@dataclass(frozen=True)
class TrialFrame:
    """Inputs to try a model with."""

    arrays: Mapping[str, np.ndarray]
    description: str = ""
    """Difference from the usual random frame; empty for that one."""


def candidates(specs: Sequence[TensorSpec], seed: int) -> Iterator[TrialFrame]:
    """Yield random frames, the likeliest to be valid first.

    Floats are normally distributed, or shares between 0 and 1, as thresholds and weights are.
    """
    frame = random_frame(specs, seed)
    has_floats = any(array.dtype.kind == "f" for array in frame.values())
    has_integers = any(map(_may_count, frame.values()))
    for is_share in (False, True) if has_floats else (False,):
        for integer in _INTEGERS if has_integers else (None,):
            arrays = {name: _replace_values(array, integer, is_share=is_share) for name, array in frame.items()}
            kinds = ["floats between 0 and 1"] * is_share + [f"integers {integer}"] * (integer is not None)
            yield TrialFrame(arrays, " and ".join(kinds))


def is_tame(outputs: Mapping[str, np.ndarray]) -> bool:
    """Check if outputs are finite, and small enough to compare."""
    floats = [array for array in outputs.values() if array.dtype.kind == "f"]
    # NaN is not below a limit, which float16 cannot state.
    return all(bool((np.abs(array.astype(np.float64)) < _LARGEST).all()) for array in floats)


def _may_count(array: np.ndarray) -> bool:
    # Integers of 8 bits are pixels, or what numbers were quantised to.
    return array.dtype.kind in "iu" and array.dtype.itemsize > 1


def _replace_values(array: np.ndarray, integer: int | None, *, is_share: bool) -> np.ndarray:
    if _may_count(array) and integer is not None:
        return np.full_like(array, integer)
    if array.dtype.kind == "f" and is_share:
        # The fractions of normal values are spread nearly evenly.
        fractions: np.ndarray = np.mod(array.astype(np.float64), 1.0).astype(array.dtype)
        return fractions
    return array
