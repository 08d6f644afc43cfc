"""Writers of what works line by line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.lines import extremes, layer_norm, normalization, reductions, softmax
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.writer import Writer, store

_EFFORT = 8


def _of_one(statement: Callable[..., Any]) -> Callable[[Fused, Any, Machine, int], Any]:
    """Return the writer of what has one operand."""
    return lambda fused, form, machine, tasks: statement(form, machine, fused.operands[0], store(fused), tasks)


def _layer_norm(fused: Fused, form: layer_norm.LayerNorm, machine: Machine, tasks: int) -> Any:
    return layer_norm.statement(form, machine, fused.operands, store(fused), tasks)


def _each(count: int) -> Callable[[Any], int]:
    """Return what counts so many operations for each element."""
    return lambda form: int(form.lines.size) * count


WRITERS = {
    "normalization": Writer(
        normalization.Normalization,
        _of_one(normalization.statement),
        lambda form: math.prod(form.shape) * (form.size + 5),
    ),
    "reduction": Writer(reductions.Reduction, _of_one(reductions.statement), _each(1), _EFFORT),
    "extreme": Writer(extremes.Extreme, _of_one(extremes.statement), _each(2), _EFFORT),
    "softmax": Writer(softmax.Softmax, _of_one(softmax.statement), _each(5), _EFFORT),
    "layer_norm": Writer(layer_norm.LayerNorm, _layer_norm, _each(8), _EFFORT),
}
