"""Extremes: where the largest or smallest element of each line is; the first one, of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.lines import folding, lines, reductions
from pipeline.executor.schedules.lines.folding import Fold
from pipeline.executor.schedules.lines.lines import Bundle, Lines
from pipeline.executor.schedules.machine import Machine

_FOLDS = {"argmax": folding.LARGEST, "argmin": folding.SMALLEST}
KINDS = frozenset(_FOLDS)
DTYPES = {"float32", "float64", "int8", "uint8", "int32", "int64"}

LONGEST = 1 << 24
"""Elements of a line whose places are all float32 numbers."""


@dataclass(frozen=True)
class Extreme:
    """Along which axes, one of `KINDS`, and whether the result has the axes still, with one element."""

    lines: Lines
    kind: str
    keeps: bool


def statement(form: Extreme, machine: Machine, data: Any, store: Callable[..., Any], tasks: int) -> Any:
    """Return the whole computation; `store` makes the statement that stores a place at its indices."""
    source, declare = tir.flat(data, "data", form.lines.size, str(data.dtype))

    def body(bundle: Bundle) -> Any:
        statements, places = _found(form, bundle, source)

        def whole(place: Any, *indices: Any) -> Any:
            return store(place.astype("int64"), *indices)

        return tir.sequence([*statements, *reductions.stores(form, bundle, places, whole)])

    loops = lines.each(form.lines, machine.lanes, tasks, body, count=folding.REGISTERS)
    return tir.sequence([declare, loops])


def _found(form: Extreme, bundle: Bundle, source: Any) -> tuple[list[Any], list[Any]]:
    """Return statements, and for each vector of lines, or the line, the place where it is, as float32."""
    how = _fold(form.kind, str(source.dtype))

    def number(at: Any, size: int, _: int) -> Any:
        # Of two values the second one is taken where a comparison is false, as it is with NaN, which is passed over.
        return how.combine(bundle.read(source, at, size), how.unchanged(size))

    statements, best = bundle.fold(how, number)

    def place(at: Any, size: int, which: int) -> Any:
        equal = tirx.EQ(bundle.read(source, at, size), bundle.wide(best[which], size))
        return tirx.Select(equal, _places(bundle, at, size), tir.constant(float("inf"), size))

    found, places = bundle.fold(folding.SMALLEST, place)
    return [*statements, *found], [_unless_first(bundle, source, each, which) for which, each in enumerate(places)]


def _fold(kind: str, dtype: str) -> Fold:
    """Return the fold to the largest or smallest value of a dtype."""
    how = _FOLDS[kind]
    if dtype.startswith("float"):
        return how._replace(dtype=dtype)
    limits = np.iinfo(dtype)
    return how._replace(dtype=dtype, neutral=int(limits.min if kind == "argmax" else limits.max))


def _places(bundle: Bundle, at: Any, size: int) -> Any:
    """Return how far from their lines' begin the elements at an offset are."""
    ((_, stride),) = bundle.lines.runs
    if not bundle.lines.inner:
        return tir.wide((at // stride).astype("float32"), size)
    first = at.astype("int32")
    each = first if size == 1 else tirx.Ramp(first, tirx.IntImm("int32", 1), size)
    return each.astype(tir.lanewise("float32", size))


def _unless_first(bundle: Bundle, source: Any, place: Any, which: int) -> Any:
    """Return a place; the first one where a line begins with NaN, as that is never exceeded by what follows."""
    if not str(source.dtype).startswith("float"):
        return place
    first = bundle.read(source, tir.number(which * bundle.lanes), bundle.result)
    least = tir.wide(tirx.const(float("-inf"), str(source.dtype)), bundle.result)
    return tirx.Select(first >= least, place, tir.constant(0.0, bundle.result))
