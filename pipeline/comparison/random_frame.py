"""Random frame: seeded inputs for whatever is compared or timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.packed_value import is_packed, is_packed_array
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError

PERTURBATION = 1e-5
"""Share of a float: some dozen of float32's last places. Libraries differ by this after many sums."""


def random_frame(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return random tensors of a frame.

    Normally distributed floats, integers of 8 bits in all their range, or zeros and ones. Raises `InputError` if one of
    them is a packed value. Equal seeds give equal frames.
    """
    generator = np.random.default_rng(seed)
    return {spec.name: _random_array(generator, spec) for spec in specs}


def _random_array(generator: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    if is_packed(spec):
        raise InputError(
            f"{spec.name!r} has no fixed shape, so that there are no random values of it; give your own frames"
        )
    dtype = np.dtype(spec.dtype)
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(spec.shape).astype(dtype)
    if dtype in (np.int8, np.uint8):
        # Pixels, or what numbers were quantised to: of two values alone most of a model would never be used.
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, spec.shape, dtype, endpoint=True)
    # Integers are often indices or flags: 0 and 1 are valid in every table of two rows.
    return generator.integers(0, 2, spec.shape).astype(dtype)


def perturb(frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a slightly different frame, to test sensitivity to rounding.

    All floats are a little larger or smaller; of integers of 8 bits, one in a hundred is the next or the last one.
    """
    generator = np.random.default_rng(0)
    return {name: _perturb_array(generator, array) for name, array in frame.items()}


def _perturb_array(generator: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype in (np.int8, np.uint8) and not is_packed_array(array):
        limits = np.iinfo(array.dtype)
        steps = generator.choice([-1, 0, 1], array.shape, p=[0.005, 0.99, 0.005])
        neighbours: np.ndarray = np.clip(array + steps, limits.min, limits.max).astype(array.dtype)
        return neighbours
    if array.dtype.kind != "f":
        return array
    factors = 1 + PERTURBATION * generator.choice([-1.0, 1.0], array.shape)
    perturbed_array: np.ndarray = (array * factors).astype(array.dtype)
    return perturbed_array


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
