"""Operators in VTA's reach, with their lowering rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from boards.vta.lowering import arithmetic, conversions, pooling, products, shapes
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import UnroundedSums, Unsupported

CLIPPING = {"nn.relu", "clip", "maximum", "minimum", "reshape", "squeeze", "expand_dims"}
"""Operators from bytes to bytes: they clip or reshape."""

RULES: dict[str, Callable[[StepBuilder, Any], Any]] = {
    "dequantize": conversions.dequantize,
    "quantize": conversions.quantize,
    "Requantize": conversions.requantize,
    "astype": conversions.astype,
    "nn.conv2d": products.conv2d,
    "matmul": products.matmul,
    "add": arithmetic.add,
    "nn.relu": arithmetic.clip_to(0, np.inf),
    "clip": arithmetic.clip,
    "maximum": arithmetic.limit("low"),
    "minimum": arithmetic.limit("high"),
    "multiply": arithmetic.multiply,
    "left_shift": arithmetic.left_shift,
    "right_shift": arithmetic.right_shift,
    "nn.max_pool2d": pooling.max_pool2d,
    "nn.avg_pool2d": pooling.avg_pool2d,
    "mean": pooling.mean,
    "concat": shapes.concat,
    "reshape": shapes.reshape,
    "squeeze": shapes.reshape,
    "expand_dims": shapes.reshape,
}


def lower_binding(builder: StepBuilder, var: Any, value: Any) -> None:
    """Follow the binding of a variable, or raise `Unsupported`."""
    from pipeline.model.passes.bindings import form_of

    # A binding to a variable only gives it another name.
    result = builder.value_of(value)
    if result is None:
        name = form_of(value).get("kind") or str(getattr(getattr(value, "op", None), "name", "")).removeprefix("relax.")
        rule = RULES.get(name)
        if rule is None:
            raise Unsupported(f"VTA has no {name.split('.')[-1] or 'such operator'}")
        result = rule(builder, value)
        if isinstance(result, UnroundedSums) and str(var.ty.dtype) == "int8":
            # Operators on int8 wrap around where VTA would clip.
            if name not in CLIPPING:
                raise Unsupported("it computes in eight bits, and what does not fit is lost")
            result = builder.round_sums(result, 0.0, 0)
    builder.assign(var, result)
