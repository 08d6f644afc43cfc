"""Local response normalization: sliding sums of squares over a pixel's channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import GenericConst

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import extents
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.tvm import statements as tir

# The operators that ONNX's LRN is imported as, from the power of the sums back to the square of the data.
_OPERATORS = ("add", "multiply", "squeeze", "nn.avg_pool3d", "expand_dims", "multiply")


@dataclass(frozen=True)
class LocalResponseNormForm:
    """Normalization over NHWC channels: ``x / (bias + alpha * mean(x * x)) ** beta``."""

    shape: tuple[int, int, int, int]
    size: int
    pad_before: int
    alpha: float
    bias: float
    beta: float


class LocalResponseNorm(Kernel[LocalResponseNormForm]):
    """Local response normalization, recognised by its final division."""

    name = "local_response_norm"
    operators = frozenset({"divide"})
    form = LocalResponseNormForm

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match the imported operators of ONNX's LRN."""
        source, power = call.args[0], rewriter.producer(call.args[1], "power")
        calls = _chain(rewriter, power)
        if power is None or calls is None:
            return None
        add, scale, _, pool, _, square = calls
        constants = (_constant_number(operand.args[1]) for operand in (power, add, scale))
        # Alpha, beta and bias are constants of the model; computed ones are left to TVM.
        numbers = [number for number in constants if number is not None]
        if len(numbers) < 3 or any(not operand.same_as(source) for operand in square.args):
            return None
        window = _window(pool.attrs)
        if window is None or source.ty.ndim != 4 or str(source.ty.dtype) != "float32":
            return None
        batch, channels, height, width = extents(source.ty)
        beta, bias, alpha = numbers
        shape = (batch, height, width, channels)
        form = LocalResponseNormForm(shape, *window, alpha, bias, beta)
        return self.placeholder(rewriter.builder, form, [rewriter.last(source)], shape)

    def write(self, group: FusedGroup, form: LocalResponseNormForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Loop over rows of pixels, with one pixel's squares buffered."""
        batch, height, width, _ = form.shape

        def row(index: Any) -> Any:
            squares = _Squares(form, group.operands[0], cpu.lanes)

            def pixel(w: Any) -> Any:
                return squares.normalize((index // height, index % height, w), epilogue_store(group))

            return tir.sequence([*squares.begin(), tir.loop("w", width, pixel)])

        return tir.loop("line", batch * height, row, tir.parallel(tasks))

    def operations(self, form: LocalResponseNormForm) -> int:
        """Count sums, plus square, scaling, power and division."""
        return math.prod(form.shape) * (form.size + 5)


class _Squares:
    """Squares of one pixel's channels, with zeros around them."""

    def __init__(self, form: LocalResponseNormForm, data: Any, lanes: int) -> None:
        self._form, self._data, self._lanes = form, data, lanes
        self._channels = form.shape[-1]
        self._buffer = tir.buffer("squares", [self._channels + form.size - 1])

    def begin(self) -> list[Any]:
        """Allocate the buffer and clear the channels' margin."""
        form, end = self._form, self._channels + self._form.size - 1
        border_positions = [*range(form.pad_before), *range(form.pad_before + self._channels, end)]
        zero = tirx.FloatImm("float32", 0.0)
        return [
            # For each row of pixels once: a pixel's squares are written between the zeros, never over them.
            tirx.AllocBuffer(self._buffer),
            *(tir.store(self._buffer, zero, tir.number(position)) for position in border_positions),
        ]

    def normalize(self, pixel: tuple[Any, Any, Any], store: Callable[..., Any]) -> Any:
        """Square a pixel's channels and store them normalised."""

        def square(c: Any, size: int) -> Any:
            value = tir.load(self._data, *pixel, tir.span(c, size))
            return tir.store(self._buffer, value * value, tir.span(c + self._form.pad_before, size))

        def scale(c: Any, size: int) -> Any:
            return tir.loop("lane", size, lambda lane: self._store_channel(pixel, c + lane, store), tir.VECTORIZED)

        steps = (square, scale)
        return tir.sequence([tir.run(self._channels, self._lanes, step) for step in steps])

    def _store_channel(self, pixel: tuple[Any, Any, Any], c: Any, store: Callable[..., Any]) -> Any:
        form = self._form
        # Summed up anew for each channel: a running sum would chain all lanes, and keep its rounding errors.
        total = tir.load(self._buffer, c)
        for offset in range(1, form.size):
            total = total + tir.load(self._buffer, c + offset)
        divisor = _power(total * (form.alpha / form.size) + form.bias, form.beta)
        return store(tir.load(self._data, *pixel, c) / divisor, *pixel, c)


def _chain(rewriter: Rewriter, power: Any) -> list[Any] | None:
    """Return the calls before the power, last first, if `_OPERATORS`."""
    calls: list[Any] = []
    value = power.args[0] if power is not None else None
    for name in _OPERATORS:
        call = rewriter.producer(value, name)
        if call is None:
            return None
        calls.append(call)
        value = call.args[0]
    return calls


def _window(attrs: Any) -> tuple[int, int] | None:
    """Return a pooling's channel count, and those before the centre."""
    size, pad_before = int(attrs.pool_size[0]), int(attrs.padding[0])
    only_channels = _integers(attrs.pool_size)[1:] == (1, 1) and _integers(attrs.strides) == (1, 1, 1)
    # ONNX's window lies along the channels, which are the depth of the pool, about half of it on either side.
    padding = (pad_before, 0, 0, size - 1 - pad_before, 0, 0)
    if not only_channels or not attrs.count_include_pad or _integers(attrs.padding) != padding:
        return None
    return size, pad_before


def _integers(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _constant_number(value: Any) -> float | None:
    """Return the common number of a constant's elements."""
    array = value.value.numpy() if isinstance(value, GenericConst) else None
    if array is None or not array.size or not (array == array.reshape(-1)[0]).all():
        return None
    return float(array.reshape(-1)[0])


def _power(value: Any, exponent: float) -> Any:
    """Return a power, as vectorisable roots where possible."""
    if exponent == 0.75:
        root = tirx.sqrt(value)
        return root * tirx.sqrt(root)
    if exponent == 0.5:
        return tirx.sqrt(value)
    return value if exponent == 1 else tirx.power(value, tirx.FloatImm("float32", exponent))
