"""Layer normalization: each line to mean zero and variance one, then scaled and shifted element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.lines import folding, lines, reductions
from pipeline.executor.schedules.lines.lines import Bundle, Lines
from pipeline.executor.schedules.lines.reductions import Reduction
from pipeline.executor.schedules.machine import Machine


@dataclass(frozen=True)
class LayerNorm:
    """Along which axes, what is added to the variance, and whether there are a scale and a shift."""

    lines: Lines
    epsilon: float
    scaled: bool
    shifted: bool


def statement(form: LayerNorm, machine: Machine, operands: Sequence[Any], store: Callable[..., Any], tasks: int) -> Any:
    """Return the whole computation; `store` makes the statement that stores a value at its indices."""
    sizes = [form.lines.size, form.lines.length, form.lines.length]
    views = [tir.flat(each, "view", size) for each, size in zip(operands, sizes, strict=False)]
    source, *parameters = [view for view, _ in views]
    body = _Body(form, source, parameters, store)
    loops = lines.each(form.lines, machine.lanes, tasks, body.statement, count=1)
    return tir.sequence([*(declare for _, declare in views), loops])


class _Body:
    """Writes what happens to one line, or to one vector of them."""

    def __init__(self, form: LayerNorm, source: Any, parameters: Sequence[Any], store: Callable[..., Any]) -> None:
        self._form, self._source, self._store = form, source, store
        self._scale = parameters[0] if form.scaled else None
        self._shift = parameters[-1] if form.shifted else None

    def statement(self, bundle: Bundle) -> Any:
        """Return the statement."""
        form = self._form
        found, (mean,) = reductions.fold(Reduction(form.lines, "mean", False, True), bundle, self._source)
        bound, mean = lines.named(found, mean, bundle)

        def squared(at: Any, size: int, which: int) -> Any:  # noqa: ARG001
            value = bundle.read(self._source, at, size) - bundle.wide(mean, size)
            return value * value

        summed, (total,) = bundle.fold(folding.SUM, squared)
        variance = total * tir.constant(1 / form.lines.length, bundle.result)
        factor = tir.constant(1.0, bundle.result) / tirx.sqrt(variance + tir.constant(form.epsilon, bundle.result))
        scaled, factor = lines.named(summed, factor, bundle)

        def element(at: Any, size: int) -> Any:
            value = bundle.read(self._source, at, size) - bundle.wide(mean, size)
            return self._adjusted(bundle, value * bundle.wide(factor, size), at, size)

        return tir.sequence([*bound, *scaled, lines.written(bundle, element, self._store)])

    def _adjusted(self, bundle: Bundle, value: Any, at: Any, size: int) -> Any:
        if self._scale is not None:
            value *= self._parameter(bundle, self._scale, at, size)
        return value if self._shift is None else value + self._parameter(bundle, self._shift, at, size)

    @staticmethod
    def _parameter(bundle: Bundle, parameter: Any, at: Any, size: int) -> Any:
        if bundle.lines.inner:
            return tir.load(parameter, tir.span(at, size))
        one = tir.load(parameter, at // bundle.lines.runs[-1].stride)
        return one if size == 1 else tir.vector(one, size)
