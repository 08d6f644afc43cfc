"""Quantization: real numbers of a tensor's integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import PlanError


@dataclass(frozen=True)
class Quantization:
    """Real numbers of integers: ``(integer - zero_point) * scale``.

    Raises `PlanError` if a scale is not above 0, or there is not a zero point for each scale.
    """

    tensor: str
    scale: tuple[float, ...]
    """Scale for all, or one for each position along `axis`."""
    zero_point: tuple[int, ...]
    """Zero points, as many as scales."""
    axis: int = 0

    def __post_init__(self) -> None:
        if not self.scale or not all(0 < scale < math.inf for scale in self.scale):
            raise PlanError(f"the scales of tensor {self.tensor!r} are {list(self.scale)}; they must be above 0")
        if len(self.zero_point) != len(self.scale):
            raise PlanError(
                f"tensor {self.tensor!r} has {len(self.scale)} scales and {len(self.zero_point)} zero points; "
                "give as many of both"
            )
        if self.axis < 0:
            raise PlanError(f"the scales of tensor {self.tensor!r} lie along axis {self.axis}; count from 0")

    def numbers(self, integers: Any) -> np.ndarray:
        """Return the real numbers of `integers` as float32."""
        values = np.asarray(integers)
        scale, zero = np.array(self.scale, np.float32), np.array(self.zero_point, np.float32)
        if len(scale) > 1:
            shape = [1] * values.ndim
            shape[self.axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        # In float32 these are exact up to 24 bits, which is more than any quantised tensor has.
        numbers: np.ndarray = (values.astype(np.float32) - zero) * scale
        return numbers


def numbers(outputs: Mapping[str, Any], quantizations: Iterable[Quantization]) -> Mapping[str, Any]:
    """Return outputs by name, quantised ones as real numbers."""
    # Usually there are none, and the outputs need not be copied to another mapping.
    by_tensor = {quantization.tensor: quantization for quantization in quantizations}
    if not by_tensor:
        return outputs
    return {name: by_tensor[name].numbers(array) if name in by_tensor else array for name, array in outputs.items()}
