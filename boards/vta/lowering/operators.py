"""Operators: those that VTA can have a part in, each with the rule that follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from boards.vta.lowering import arithmetic, conversions, pooling, products, shapes

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader

CLIPPING = {"nn.relu", "clip", "maximum", "minimum", "reshape", "squeeze", "expand_dims"}
"""What bytes remain bytes by."""

RULES: dict[str, Callable[[Reader, Any], Any]] = {
    "dequantize": conversions.dequantize,
    "quantize": conversions.quantize,
    "astype": conversions.astype,
    "nn.conv2d": products.conv2d,
    "matmul": products.matmul,
    "add": arithmetic.add,
    "nn.relu": arithmetic.clipped(0, np.inf),
    "clip": arithmetic.clip,
    "maximum": arithmetic.limit("low"),
    "minimum": arithmetic.limit("high"),
    "multiply": arithmetic.multiply,
    "left_shift": arithmetic.left_shift,
    "right_shift": arithmetic.right_shift,
    "nn.max_pool2d": pooling.max_pool2d,
    "reshape": shapes.reshape,
    "squeeze": shapes.reshape,
    "expand_dims": shapes.reshape,
}
