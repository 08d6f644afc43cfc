"""Decomposition: PyTorch's exported operators to those of TVM, no further."""

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


RECURRENT_LAYERS = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")

MOST_STEPS = 64
"""Bound on recurrent steps times weights: each step is a dozen operators, and takes a second to compile."""


def decompose(program: Any, *, fallback: bool) -> Any:
    """Return the program in core operators, long recurrent layers excepted."""
    table = torch.export.default_decompositions()
    for operator in (*_WHOLE_OPERATORS, *(RECURRENT_LAYERS if fallback and _is_long(program) else ())):
        packet, _, overload = operator.partition(".")
        # With a default: a version of PyTorch that has no decomposition of it keeps the operator anyway.
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return program.run_decompositions(table)


def _is_long(program: Any) -> bool:
    """Check for recurrent layers with many steps."""
    steps = 0
    for node in program.graph.nodes:
        if getattr(node.target, "__name__", "") in RECURRENT_LAYERS:
            # Weights are at least two for each direction of each layer.
            weights, is_batch_first = node.args[2], node.args[8]
            extent = node.args[0].meta["val"].shape[1 if is_batch_first else 0]
            steps += int(extent) * len(weights) if isinstance(extent, int) else 0
    return steps > MOST_STEPS * 4
