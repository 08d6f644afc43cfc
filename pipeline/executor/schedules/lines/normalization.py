"""Local response normalization: squares of a pixel's channels, summed up by a sliding window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.layout.values import extents
from pipeline.executor.schedules.machine import Machine


@dataclass(frozen=True)
class Normalization:
    """A local response normalization over channels: ``x / (bias + alpha * mean(x * x)) ** beta``."""

    shape: tuple[int, int, int, int]
    size: int
    before: int
    alpha: float
    bias: float
    beta: float


def rule(rewriter: Rewriter, call: Any) -> Any:
    """Find the sequence of operators that ONNX's LRN is imported as, by its last one."""
    source, power = call.args[0], rewriter.made_by(call.args[1], "power")
    names = ("add", "multiply", "squeeze", "nn.avg_pool3d", "expand_dims", "multiply")
    chain: list[Any] = []
    value = power.args[0] if power is not None else None
    for name in names:
        made = rewriter.made_by(value, name)
        if made is None:
            return None
        chain.append(made)
        value = made.args[0]
    add, scale, _, pool, _, square = chain
    numbers = [number for each in (power, add, scale) if (number := _single(each.args[1])) is not None]
    if len(numbers) < 3 or any(not each.same_as(source) for each in square.args):
        return None
    attrs = pool.attrs
    size, before = int(attrs.pool_size[0]), int(attrs.padding[0])
    plain = _numbers(attrs.pool_size)[1:] == (1, 1) and _numbers(attrs.strides) == (1, 1, 1)
    if not plain or not attrs.count_include_pad or _numbers(attrs.padding) != (before, 0, 0, size - 1 - before, 0, 0):
        return None
    if source.ty.ndim != 4 or str(source.ty.dtype) != "float32":
        return None
    batch, channels, height, width = extents(source.ty)
    beta, bias, alpha = numbers
    shape = (batch, height, width, channels)
    detail = Normalization(shape, size, before, alpha, bias, beta)
    return anchors.stand_in(rewriter.builder, "normalization", detail, [rewriter.last(source)], shape)


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in values)


def _single(value: Any) -> float | None:
    array = value.value.numpy() if isinstance(value, GenericConst) else None
    return (
        float(array.reshape(-1)[0])
        if array is not None and array.size and (array == array.reshape(-1)[0]).all()
        else None
    )


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
                value = tir.load(data, image, h, w, tir.span(c, size))
                return tir.store(squares, value * value, tir.span(c + form.before, size))

            def scale(c: Any, size: int) -> Any:
                return tir.loop("lane", size, lambda lane: result(c + lane), tir.VECTORIZED)

            def result(c: Any) -> Any:
                total = tir.load(squares, c)
                for offset in range(1, form.size):
                    total = total + tir.load(squares, c + offset)
                value = tir.load(data, image, h, w, c)
                return store(value / _power(total * (form.alpha / form.size) + form.bias, form.beta), image, h, w, c)

            return tir.sequence([tir.run(channels, lanes, square), tir.run(channels, lanes, scale)])

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
