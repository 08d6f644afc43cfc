"""Random frame: seeded inputs for whatever is compared or timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.core.packed_value import is_packed
from pipeline.core.plan import TensorSpec
from pipeline.errors import InputError


def random_frame(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return normally distributed floats, or zeros and ones, for each tensor.

    Parameters
    ----------
    specs : sequence of TensorSpec
        Names, shapes and dtypes.
    seed : int
        Equal seeds give equal frames.

    Raises
    ------
    InputError
        If one of them is a packed value.
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
    # Integers are often indices or flags: 0 and 1 are valid in every table of two rows.
    return generator.integers(0, 2, spec.shape).astype(dtype)
