"""Numerics: liberties of a build for speed or size; none by default."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.core.plan.stage_options import StageOptions
from pipeline.errors import BuildError

TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}
"""Largest allowed error, as a share of the largest output, by how weights are stored."""

ARITHMETIC = {"float32": 0.0, "float16": 2e-2}
"""Allowed errors by arithmetic."""

ROUNDING = {"float16": 2e-2, "bfloat16": 1e-1}
"""The same against float32 by the dtype of tensors: each operator rounds to 11 or 8 bits, and dozens follow."""


def check_tolerance(tolerance: object) -> None:
    """Check the type and range of a tolerance; `BuildError` if it is negative, infinite, or no number."""
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise BuildError(f"tolerance is {tolerance!r}; it must be a share of the largest output, such as 0.001")


def rounding_of(dtypes: Iterable[str]) -> float:
    """Return the error to allow for a model with tensors of `dtypes`."""
    return max((ROUNDING.get(dtype, 0.0) for dtype in dtypes), default=0.0)


@dataclass(frozen=True)
class Numerics:
    """Choices that change results, within a tolerance.

    Attributes
    ----------
    winograd : bool
        True if float32 3x3 convolutions may be computed by Winograd's transforms where that takes fewer cycles.
        Rounding errors of products then weigh 1.7 or 7.5 times as much as in direct sums (tiles of 2 x 2 or 4 x 4
        results): up to 3e-6 of a layer's largest value were measured with 512 channels, where direct sums have 2e-6.
    weights : str
        Storage format of weights of convolutions, also transposed ones, and of dense layers: ``"float32"``,
        ``"float16"`` or ``"bfloat16"``. Weights of one kernel per channel, which are few, stay float32. Sums stay
        float32; half as many bytes are read.
    arithmetic : str
        Number format of multiplications in these operators: ``"float32"``, or ``"float16"``, which processors that have
        it do twice as fast. Weights are then stored as float16; data are rounded to it, and numbers above 65,504 become
        infinite. Up to 64 products are added up in float16, and sums of these in float32.

    Raises
    ------
    BuildError
        If `weights` or `arithmetic` is something else, or weights are bfloat16 that float16 is to be multiplied with.
    """

    winograd: bool = False
    weights: str = "float32"
    arithmetic: str = "float32"

    def __post_init__(self) -> None:
        for name, value, kinds in (("weights", self.weights, TOLERANCES), ("arithmetic", self.arithmetic, ARITHMETIC)):
            if value not in kinds:
                raise BuildError(f"{name} is {value!r}; it must be one of {', '.join(kinds)}")
        if self.arithmetic == "float16":
            if self.weights == "bfloat16":
                raise BuildError("arithmetic is float16, and weights are bfloat16; leave one of them out")
            # A frozen instance can be changed while it is made only.
            object.__setattr__(self, "weights", "float16")

    @property
    def tolerance(self) -> float:
        """Allowed error, as a share of the largest output."""
        return max(TOLERANCES[self.weights], ARITHMETIC[self.arithmetic], 1e-4 if self.winograd else 0.0)

    def of_stage(self, options: StageOptions) -> Numerics:
        """Return these choices with a stage's own ones."""
        return Numerics(
            self.winograd if options.winograd is None else options.winograd,
            self.weights if options.weights is None else options.weights,
            self.arithmetic if options.arithmetic is None else options.arithmetic,
        )


EXACT = Numerics()
"""Nothing is changed."""
