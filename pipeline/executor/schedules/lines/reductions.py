"""Reductions: sums, means, products, extremes and variances along any axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.lines import folding, lines
from pipeline.executor.schedules.lines.lines import Bundle, Lines
from pipeline.executor.schedules.machine import Machine

_FOLDS = {
    "sum": folding.SUM,
    "mean": folding.SUM,
    "prod": folding.PRODUCT,
    "max": folding.LARGEST,
    "min": folding.SMALLEST,
    "variance": folding.SUM,
}
KINDS = frozenset(_FOLDS)


@dataclass(frozen=True)
class Reduction:
    """What becomes of the elements of each line.

    Attributes
    ----------
    lines : Lines
    kind : str
        One of `KINDS`.
    squared : bool
        Whether each element is multiplied by itself first.
    keeps : bool
        Whether the result has the axes still, with one element.
    """

    lines: Lines
    kind: str
    squared: bool
    keeps: bool


def statement(form: Reduction, machine: Machine, data: Any, store: Callable[..., Any], tasks: int) -> Any:
    """Return the whole computation; `store` makes the statement that stores a value at its indices."""
    source, declare = tir.flat(data, "data", form.lines.size)

    def body(bundle: Bundle) -> Any:
        statements, totals = fold(form, bundle, source)
        return tir.sequence([*statements, *stores(form, bundle, totals, store)])

    loops = lines.each(form.lines, machine.lanes, tasks, body, count=folding.REGISTERS)
    return tir.sequence([declare, loops])


def fold(form: Reduction, bundle: Bundle, source: Any) -> tuple[list[Any], list[Any]]:
    """Return statements, and what each vector of lines, or the line, becomes."""
    share = tir.constant(1 / form.lines.length, bundle.result)
    statements: list[Any] = []
    means: list[Any] = []
    if form.kind == "variance":
        statements, sums = bundle.fold(folding.SUM, lambda at, size, _: bundle.read(source, at, size))
        means = [total * share for total in sums]

    def read(at: Any, size: int, which: int) -> Any:
        value = bundle.read(source, at, size)
        if means:
            value -= bundle.wide(means[which], size)
        return value * value if means or form.squared else value

    folded, totals = bundle.fold(_FOLDS[form.kind], read)
    if form.kind in ("mean", "variance"):
        totals = [total * share for total in totals]
    return [*statements, *folded], totals


def stores(form: Any, bundle: Bundle, totals: list[Any], store: Callable[..., Any]) -> list[Any]:
    """Return the statements that store what each vector of lines, or the line, has become.

    `form` tells the lines, and whether the result keeps their axes.
    """
    *places, column = bundle.places or [tir.number(0)]
    if bundle.lines.inner:
        return [store(totals[0], *_indices(form, bundle.places))]
    statements = []
    for number, total in enumerate(totals):
        first = column + number * bundle.lanes

        def one(value: Any, lane: Any, first: Any = first) -> Any:
            return store(value, *_indices(form, [*places, first + lane]))

        statements += lines.lanewise(total, bundle.lanes, one)
    return statements


def _indices(form: Any, places: list[Any]) -> list[Any]:
    if not form.keeps:
        return places
    outside = dict(zip(form.lines.kept, places, strict=True))
    return [outside.get(axis, tir.number(0)) for axis in range(len(form.lines.shape))]
