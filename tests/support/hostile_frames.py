"""Hostile frames: values of the right shapes and dtypes that a model's author did not think of."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def make_frame(name: str, number: int, sample: Arrays) -> dict[str, np.ndarray]:
    """Return one of a case's frames: one or two inputs are hostile, or all of them, the others as in the sample."""
    random = np.random.default_rng([zlib.crc32(name.encode()), number])
    names = list(sample)
    count = len(names) if number % 4 == 3 else min(len(names), 1 + number % 2)
    hostile = set(random.choice(names, count, replace=False)) if names else set()
    extents = sorted({extent for array in sample.values() for extent in array.shape})
    return {key: _spoil(random, array, extents) if key in hostile else array for key, array in sample.items()}


def _spoil(random: np.random.Generator, sample: np.ndarray, extents: list[int]) -> np.ndarray:
    """Return values of an array's kind: all the same, a few among the sample's, many kinds, or over the whole range."""
    values = _values(sample.dtype, extents)
    way = int(random.integers(4))
    with np.errstate(all="ignore"):
        if way == 0:
            return np.full_like(sample, random.choice(values))
        if way == 3 and sample.dtype.kind in "iu":
            limits = np.iinfo(sample.dtype)
            return random.integers(limits.min, limits.max, sample.shape, sample.dtype, endpoint=True)
        if way == 3 and sample.dtype.kind == "f":
            # Any bits are a float.
            bits = random.integers(0, 256, sample.nbytes, np.uint8)
            return bits.view(sample.dtype).reshape(sample.shape)
        places = random.random(sample.shape) < (1.5 / max(1, sample.size) if way == 1 else 0.7)
        return np.where(places, random.choice(values, sample.shape), sample).astype(sample.dtype)


def _values(dtype: np.dtype, extents: list[int]) -> np.ndarray:
    """Return a dtype's hostile values; whole numbers around the extents are the nearest wrong indices."""
    if dtype.kind == "b":
        return np.array([False, True])
    near: list[float] = [sign * extent + step for extent in [*extents, 0] for sign in (1, -1) for step in (-1, 0, 1)]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        numbers = {*near, limits.min, limits.max, limits.min + 1, 2**31, -(2**31), 2**32 + 1, 10**9, 127, 255, 64, 31}
        return np.array(sorted(number for number in numbers if limits.min <= number <= limits.max), dtype)
    limits = np.finfo(dtype)
    numbers = {*near, 0.5, -0.5, 1e-30, 1e4, 1e9, -1e9, 2.0**31, -(2.0**31), 2.0**63, 1e30, -1e30}
    edges = [-0.0, np.nan, np.inf, -np.inf, limits.max, limits.min, limits.smallest_subnormal]
    with np.errstate(over="ignore"):
        return np.array([*sorted(numbers), *edges, *edges], dtype)
