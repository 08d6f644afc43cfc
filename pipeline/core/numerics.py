"""Numerics: precision of a build's products."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pipeline.core.plan.stage_options import PRECISIONS, WEIGHTS, StageOptions
from pipeline.errors import BuildError

TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}
"""Largest allowed error, as a share of the largest output, by how weights are stored."""

NARROW = {"bfloat16": 5e-2, "float16": 2e-2}
"""Number formats of 16 bits for products, the fastest first, with the errors to allow."""

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

    Raises `BuildError` if `precision` or `weights` is something else, or weights have another format than narrow
    products.
    """

    precision: str = "float32"
    """Number format of products in convolutions and matrix products: - ``"float32"``: 3x3 convolutions by Winograd's
    transforms, where these take fewer cycles and the bound on a layer's rounding errors, from its weights, is within
    1e-5 of its largest value. - ``"float32-exact"``: float32 without Winograd's transforms. - ``"bfloat16"``: products
    of bfloat16, sums in float32, on processors with AMX, AVX512-BF16 or Arm's BF16. Values that such products read are
    kept as bfloat16. - ``"float16"``: products of float16, on 64-bit Arm cores that have them. Numbers above 65,504
    become infinite. Up to 64 products are added up in float16, and sums of these in float32. - ``"auto"``: what the
    device multiplies fastest. Weights are stored as products need them. In the last three, the first and last products
    stay float32, and as many others as the comparison with the unsplit model needs to stay within its tolerance.
    Where x86 processors multiply bfloat16 by AMX, each number of these is the sum of two bfloat16, of 16 bits."""
    weights: str = "float32"
    """Storage format of weights in float32 precisions: ``"float32"``, ``"float16"`` or ``"bfloat16"``. Weights of one
    kernel per channel, which are few, stay float32. Half as many bytes are read."""
    float32_layers: tuple[str, ...] = ()
    """Tensors whose products stay float32 in other precisions."""

    def __post_init__(self) -> None:
        for name, value, kinds in (("precision", self.precision, PRECISIONS), ("weights", self.weights, WEIGHTS)):
            if value not in kinds:
                raise BuildError(f"{name} is {value!r}; it must be one of {', '.join(kinds)}")
        if self.weights not in ("float32", self.precision) and not self.precision.startswith("float32"):
            raise BuildError(f"precision is {self.precision}, and weights are {self.weights}; leave one of them out")

    @property
    def transforms(self) -> bool:
        """True if convolutions may be computed by Winograd's transforms."""
        return self.precision != "float32-exact"

    @property
    def arithmetic(self) -> str:
        """Number format of products outside of `float32_layers`; float32 for ``"auto"`` until `resolve`."""
        return self.precision if self.precision in NARROW else "float32"

    @property
    def tolerance(self) -> float:
        """Allowed error, as a share of the largest output."""
        if self.precision == "auto":
            return min(NARROW.values())
        return NARROW.get(self.precision) or TOLERANCES[self.weights]

    def arithmetic_of(self, name: str) -> str:
        """Return the number format of the products behind a tensor."""
        return "float32" if name in self.float32_layers else self.arithmetic

    def weights_of(self, name: str) -> str:
        """Return the storage format of the weights behind a tensor."""
        arithmetic = self.arithmetic_of(name)
        return self.weights if arithmetic == "float32" else arithmetic

    def resolve(self, formats: Collection[str]) -> Numerics:
        """Return these choices with ``"auto"`` decided for a device that multiplies `formats`."""
        if self.precision != "auto":
            return self
        return replace(self, precision=next((name for name in NARROW if name in formats), "float32"))

    def of_stage(self, options: StageOptions) -> Numerics:
        """Return these choices with a stage's own ones."""
        precision = options.precision or self.precision
        weights = options.weights or (self.weights if precision.startswith("float32") else "float32")
        layers = self.float32_layers if options.float32_layers is None else options.float32_layers
        return Numerics(precision, weights, layers)


EXACT = Numerics("float32-exact")
"""Nothing is changed."""
