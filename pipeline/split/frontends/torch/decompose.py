"""Decomposition: from the operators that PyTorch exports to those that TVM imports, and no further."""

from __future__ import annotations

from typing import Any

import torch

# Their parts would be many small operators, among them the guard against rows of attention that are masked as a whole.
_WHOLE_OPERATORS = (
    "linear.default",
    "scaled_dot_product_attention.default",
    "matmul.default",
    "upsample_bilinear2d.vec",
    "upsample_nearest2d.vec",
    "upsample_bicubic2d.vec",
    "gelu.default",
    "hardswish.default",
    "hardsigmoid.default",
    "silu.default",
)


def decompose(program: Any) -> Any:
    """Return the program in PyTorch's core operators and a few more."""
    table = torch.export.default_decompositions()
    for operator in _WHOLE_OPERATORS:
        packet, _, overload = operator.partition(".")
        # With a default: a version of PyTorch that has no decomposition of it keeps the operator anyway.
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return program.run_decompositions(table)
