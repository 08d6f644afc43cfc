"""Softmax, and its logarithm: each line is read for its maximum, once more for the exponentials, and scaled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.language.exponential import exponential
from pipeline.executor.schedules.lines import folding, lines
from pipeline.executor.schedules.lines.lines import Bundle, Lines
from pipeline.executor.schedules.machine import Machine

Store = Callable[..., Any]


@dataclass(frozen=True)
class Softmax:
    """Along which axis, and whether the logarithm is wanted."""

    lines: Lines
    logarithm: bool


def statement(form: Softmax, machine: Machine, data: Any, store: Store, tasks: int) -> Any:
    """Return the whole computation; `store` makes the statement that stores a value at its indices."""
    source, declare = tir.flat(data, "data", form.lines.size)
    body = _logarithms if form.logarithm else _shares
    loops = lines.each(
        form.lines, machine.lanes, tasks, lambda bundle: tir.sequence(body(bundle, source, store)), count=1
    )
    return tir.sequence([declare, loops])


def _largest(bundle: Bundle, source: Any) -> tuple[list[Any], Any]:
    found, (largest,) = bundle.fold(folding.LARGEST, lambda at, size, _: bundle.read(source, at, size))
    return lines.named(found, largest, bundle)


def _power(bundle: Bundle, source: Any, largest: Any, at: Any, size: int) -> Any:
    return exponential(bundle.read(source, at, size) - bundle.wide(largest, size), size, largest=0.0)


def _shares(bundle: Bundle, source: Any, store: Store) -> list[Any]:
    found, largest = _largest(bundle, source)
    powers = tir.buffer("powers", [bundle.lines.length * bundle.result])
    stride = 1 if bundle.lines.inner else bundle.lines.stride(bundle.lines.axes[0])

    def place(at: Any) -> Any:
        return at if bundle.lines.inner else at // stride * bundle.lanes

    def keep(at: Any, value: Any, size: int) -> Any:
        return tir.store(powers, value, tir.span(place(at), size))

    summed, (total,) = bundle.fold(
        folding.SUM,
        lambda at, size, _: _power(bundle, source, largest, at, size),
        keep,
    )
    bound, share = lines.named(summed, tir.constant(1.0, bundle.result) / total, bundle)
    scaled = lines.written(
        bundle, lambda at, size: tir.load(powers, tir.span(place(at), size)) * bundle.wide(share, size), store
    )
    return [tirx.AllocBuffer(powers), *found, *bound, scaled]


def _logarithms(bundle: Bundle, source: Any, store: Store) -> list[Any]:
    found, largest = _largest(bundle, source)
    summed, (total,) = bundle.fold(
        folding.SUM,
        lambda at, size, _: _power(bundle, source, largest, at, size),
    )
    bound, shift = lines.named(summed, tirx.log(total) + largest, bundle)
    shifted = lines.written(bundle, lambda at, size: bundle.read(source, at, size) - bundle.wide(shift, size), store)
    return [*found, *bound, shifted]
