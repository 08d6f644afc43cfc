"""Draw: networks of random operators between bytes, whose numbers several operators may read at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

SHAPE = (1, 16, 8, 8)
ZEROS = {"int8": 0, "uint8": 128}


@dataclass
class Draw:
    """The variables so far: bytes and numbers, each with the exponent of its unit."""

    seed: int
    bytes: list[tuple[Any, int, str]] = field(default_factory=list)
    numbers: list[tuple[Any, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._arrays = np.random.default_rng(self.seed)
        self._builder = relax.BlockBuilder()
        self.dtype = self._random.choice(["int8", "uint8"])

    def module(self) -> Any:
        """Return the network."""
        x = relax.Var("x", relax.TensorType(SHAPE, self.dtype))
        self.bytes.append((x, self._random.randint(-2, 2), self.dtype))
        with self._builder.function("main", [x]):
            with self._builder.dataflow():
                operators = [self._convolve, self._rectify, self._clip, self._scale, self._add, self._pool]
                operators += [self._average, self._join]
                for _ in range(self._random.randint(2, 6)):
                    self._random.choice(operators)()
                last = self._builder.emit_output(self.bytes[-1][0])
            self._builder.emit_func_output(last)
        return relax.transform.DeadCodeElimination()(self._builder.get())

    def frame(self) -> np.ndarray:
        """Return random bytes."""
        return self._arrays.integers(0, 256, SHAPE).astype(np.uint8).view(self.dtype)

    def _any(self) -> tuple[Any, int]:
        """Return numbers: often those that another operator has read."""
        if not self.numbers or self._random.random() < 0.5:
            value, exponent, dtype = self._random.choice(self.bytes)
            expression = relax.op.dequantize(value, _scale(exponent), _zero(dtype), axis=1, out_dtype="float32")
            self.numbers.append((self._builder.emit(expression), exponent))
        return self._random.choice(self.numbers)

    def _round(self, expression: Any, exponent: int) -> None:
        dtype = self._random.choice(["int8", "int8", "uint8"])
        value = self._builder.emit(expression)
        expression = relax.op.quantize(value, _scale(exponent), _zero(dtype), axis=1, out_dtype=dtype)
        self.bytes.append((self._builder.emit(expression), exponent, dtype))

    def _convolve(self) -> None:
        self._product(*self._any(), channels=16, groups=self._random.choice([1, 1, 4, 16]))

    def _product(self, value: Any, exponent: int, *, channels: int, groups: int = 1) -> None:
        units = self._arrays.integers(-9, -6, 16)
        weights = relax.const(self._arrays.integers(-128, 128, (16, channels // groups, 3, 3)).astype(np.int8))
        scales, zeros = relax.const(np.exp2(units).astype(np.float32)), relax.const(np.zeros(16, np.int8))
        kernel = self._builder.emit(relax.op.dequantize(weights, scales, zeros, axis=0, out_dtype="float32"))
        bias = (self._arrays.integers(-999, 999, 16) * np.exp2(units + exponent)).astype(np.float32)
        sums = self._builder.emit(relax.op.nn.conv2d(value, kernel, (1, 1), (1, 1, 1, 1), groups=groups))
        self._round(relax.op.add(sums, relax.const(bias.reshape(1, 16, 1, 1))), exponent + self._random.randint(0, 2))

    def _rectify(self) -> None:
        value, exponent = self._any()
        self._round(relax.op.nn.relu(value), exponent + self._random.choice([-1, 0, 0, 2]))

    def _clip(self) -> None:
        value, exponent = self._any()
        self._round(relax.op.clip(value, -8.0, 32.0), exponent + self._random.choice([0, 0, 1]))

    def _scale(self) -> None:
        value, exponent = self._any()
        self._round(value, exponent + self._random.randint(-1, 1))

    def _add(self) -> None:
        (augend, augend_exponent), (addend, addend_exponent) = self._any(), self._any()
        self._round(relax.op.add(augend, addend), max(augend_exponent, addend_exponent) + self._random.randint(0, 1))

    def _average(self) -> None:
        value, exponent = self._any()
        size = self._random.choice([1, 2])
        pads = (size - 1, size - 1, 0, 0)
        expression = relax.op.nn.avg_pool2d(value, (size, size), (1, 1), pads, count_include_pad=True)
        self._round(expression, exponent + self._random.choice([-1, 0, 0]))

    def _join(self) -> None:
        """Join what was read already and what was not, and make sixteen channels of both."""
        (first, first_exponent), (second, second_exponent) = self._any(), self._any()
        self._round(relax.op.concat([first, second], 1), max(first_exponent, second_exponent))
        concatenation, exponent, dtype = self.bytes.pop()
        expression = relax.op.dequantize(concatenation, _scale(exponent), _zero(dtype), axis=1, out_dtype="float32")
        self._product(self._builder.emit(expression), exponent, channels=32)

    def _pool(self) -> None:
        value, exponent, dtype = self._random.choice(self.bytes)
        expression = self._builder.emit(relax.op.nn.max_pool2d(value, (3, 3), (1, 1), (1, 1, 1, 1)))
        self.bytes.append((expression, exponent, dtype))


def _scale(exponent: int) -> Any:
    return relax.const(np.float32(2.0**exponent))


def _zero(dtype: str) -> Any:
    return relax.const(np.array(ZEROS[dtype], dtype))
