"""Numerics: what a build may do to its arithmetic for speed or size; by default nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import BuildError

TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}
"""Largest allowed error, as a share of the largest output, by how weights are stored."""


@dataclass(frozen=True)
class Numerics:
    """Choices that change results, within a tolerance.

    Attributes
    ----------
    winograd : bool
        Whether float32 3x3 convolutions may be computed by Winograd's transforms where that takes fewer cycles.
        Rounding errors of products then weigh 1.7 or 7.5 times as much as in direct sums (tiles of 2 x 2 or 4 x 4
        results): up to 3e-6 of a layer's largest value were measured with 512 channels, where direct sums have 2e-6.
    weights : str
        What weights of convolutions, also transposed ones, and of dense layers are stored as: ``"float32"``,
        ``"float16"`` or ``"bfloat16"``; those of one kernel for each channel, which are few, stay float32.
        Sums stay float32; half as many bytes are read.

    Raises
    ------
    BuildError
        If `weights` is something else.
    """

    winograd: bool = False
    weights: str = "float32"

    def __post_init__(self) -> None:
        if self.weights not in TOLERANCES:
            raise BuildError(f"weights is {self.weights!r}; it must be one of {', '.join(TOLERANCES)}")

    @property
    def tolerance(self) -> float:
        """Largest allowed error against the unchanged model, as a share of the largest output."""
        return max(TOLERANCES[self.weights], 1e-4 if self.winograd else 0.0)


EXACT = Numerics()
"""Nothing is changed."""
