"""Local response normalization: squares of a pixel's channels, summed up by a sliding window."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx

from pipeline.executor.schedules import copying, tir
from pipeline.executor.schedules.machine import Machine

if TYPE_CHECKING:
    from pipeline.executor.schedules.rules import Normalization


def statement(form: Normalization, machine: Machine, data: Any, store: Callable[..., Any], tasks: int) -> Any:
    """Return the whole computation."""
    batch, height, width, channels = form.shape
    lanes = machine.lanes

    def line(index: Any) -> Any:
        image, h = index // height, index % height
        squares = tir.buffer("squares", [channels + form.size - 1])
        around = [*range(form.before), *range(form.before + channels, channels + form.size - 1)]
        zero = tirx.FloatImm("float32", 0.0)
        clear = [tir.store(squares, zero, tir.number(place)) for place in around]

        def pixel(w: Any) -> Any:
            def square(c: Any, size: int) -> Any:
                value = tir.load(data, image, h, w, _index(c, size))
                return tir.store(squares, value * value, _index(c + form.before, size))

            def scale(c: Any, size: int) -> Any:
                return tir.loop("lane", size, lambda lane: result(c + lane), tir.VECTORIZED)

            def result(c: Any) -> Any:
                total = tir.load(squares, c)
                for offset in range(1, form.size):
                    total = total + tir.load(squares, c + offset)
                value = tir.load(data, image, h, w, c)
                return store(value / _power(total * (form.alpha / form.size) + form.bias, form.beta), image, h, w, c)

            return tir.sequence([copying.run(channels, lanes, square), copying.run(channels, lanes, scale)])

        return tir.sequence([tirx.AllocBuffer(squares), *clear, tir.loop("w", width, pixel)])

    return tir.loop("line", batch * height, line, tir.parallel(tasks))


def _power(value: Any, exponent: float) -> Any:
    """Return a power; roots, which have vector instructions, where they do."""
    if exponent == 0.75:
        root = tirx.sqrt(value)
        return root * tirx.sqrt(root)
    if exponent == 0.5:
        return tirx.sqrt(value)
    return value if exponent == 1 else tirx.power(value, tirx.FloatImm("float32", exponent))


def _index(start: Any, lanes: int) -> Any:
    return start if lanes == 1 else tir.ramp(start, lanes)
