"""Rules: which operators have kernels of their own; each becomes a stand-in while a stage gets its layout."""

from __future__ import annotations

from functools import partial

from pipeline.executor.schedules.convolutions import pooling, transposed
from pipeline.executor.schedules.convolutions import rules as convolutions
from pipeline.executor.schedules.layout.rewriter import Rule
from pipeline.executor.schedules.lines import extremes, normalization, reductions
from pipeline.executor.schedules.lines import rules as lines
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.moves import moving
from pipeline.executor.schedules.products import products


def for_layout(machine: Machine, *, winograd: bool = False) -> dict[str, Rule]:
    """Return the rules that take operators over while a stage gets its layout; `winograd` as for `optimise`."""
    return {
        "nn.conv2d": partial(convolutions.convolution, machine=machine, winograd=winograd),
        "nn.conv2d_transpose": partial(transposed.rule, machine=machine),
        "nn.max_pool2d": pooling.rule,
        "nn.avg_pool2d": pooling.rule,
        "matmul": partial(products.product, machine=machine),
        "divide": _first(normalization.rule, lines.standardized),
        **dict.fromkeys(reductions.KINDS, lines.reduction),
        **dict.fromkeys(extremes.KINDS, lines.extreme),
        "permute_dims": moving.permute_dims,
        "image.resize2d": moving.resize,
        "nn.pad": moving.pad,
        "take": moving.take,
        # What is no call of an operator.
        "": moving.part,
        "nn.softmax": lines.softmax,
        "nn.log_softmax": lines.softmax,
        "nn.layer_norm": lines.layer_norm,
    }


def _first(*rules: Rule) -> Rule:
    """Return the rule that asks one after the other."""
    return lambda rewriter, call: next((made for rule in rules if (made := rule(rewriter, call)) is not None), None)
