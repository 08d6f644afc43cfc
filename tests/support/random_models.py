"""Random models: branchy graphs of all kinds of operator, with skips, several inputs and several outputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.onnx_models import node, save, weights

SHAPE = (1, 4, 6, 6)
Shape = tuple[int, ...]


class Drawing:
    """A model that is being drawn, one operator after the other."""

    def __init__(self, seed: int, inputs: int = 2) -> None:
        self.random = random.Random(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {f"in{number}": SHAPE for number in range(inputs)}
        self.inputs = list(self.shapes)

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def emit(self, kind: str, inputs: Sequence[str], *shapes: Shape, **attributes: Any) -> None:
        names = [f"t{len(self.shapes) + number}" for number in range(len(shapes))]
        self.nodes.append(node(kind, " ".join(inputs), " ".join(names), f"n{len(self.nodes)}", **attributes))
        self.shapes.update(zip(names, shapes, strict=True))

    def pick(self, *, rank: int = 0, like: Shape | None = None) -> str:
        """Return a tensor, more likely a late one."""
        names = [name for name, shape in self.shapes.items() if like in (None, shape) and rank in (0, len(shape))]
        return names[-1 - min(int(self.random.expovariate(0.4)), len(names) - 1)]

    def unread(self) -> list[str]:
        read = {name for each in self.nodes for name in each.input}
        return [name for name in self.shapes if name not in read and name not in self.inputs]


def elementwise(on: Drawing) -> None:
    x = on.pick()
    on.emit(on.random.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Neg", "Erf"]), [x], on.shapes[x])


def swish(on: Drawing) -> None:
    x = on.pick()
    on.emit("Sigmoid", [x], on.shapes[x])
    on.emit("Mul", [x, list(on.shapes)[-1]], on.shapes[x])


def binary(on: Drawing) -> None:
    x = on.pick()
    on.emit(on.random.choice(["Add", "Mul", "Sub", "Max"]), [x, on.pick(like=on.shapes[x])], on.shapes[x])


def per_channel(on: Drawing) -> None:
    x = on.pick(rank=4)
    values = on.constant(weights(1, on.shapes[x][1], 1, 1, seed=len(on.nodes)))
    on.emit(on.random.choice(["Add", "Mul"]), [x, values], on.shapes[x])


def convolution(on: Drawing) -> None:
    x = on.pick(rank=4)
    channels, size = on.shapes[x][1], on.random.choice([1, 3])
    reads = [x, on.constant(weights(4, channels, size, size, seed=len(on.nodes)) / 6)]
    if on.random.random() < 0.6:
        reads.append(on.constant(weights(4, seed=len(on.nodes))))
    on.emit("Conv", reads, (1, 4, *on.shapes[x][2:]), pads=[size // 2] * 4)


def normalization(on: Drawing) -> None:
    x = on.pick(rank=4)
    channels = on.shapes[x][1]
    reads = [on.constant(weights(channels, seed=seed, positive=seed in (0, 3))) for seed in range(4)]
    on.emit("BatchNormalization", [x, *reads], on.shapes[x])


def pooling(on: Drawing) -> None:
    x = on.pick(rank=4)
    kind = on.random.choice(["MaxPool", "AveragePool"])
    on.emit(kind, [x], on.shapes[x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def concatenation(on: Drawing) -> None:
    x, y = on.pick(rank=4), on.pick(rank=4)
    (_, first, *area), (_, second, *second_item) = on.shapes[x], on.shapes[y]
    if area == second_item and first + second <= 16:
        on.emit("Concat", [x, y], (1, first + second, *area), axis=1)


def split(on: Drawing) -> None:
    x = on.pick(rank=4)
    half = on.shapes[x][1] // 2
    if half:
        sizes = on.constant(np.array([half, on.shapes[x][1] - half]))
        on.emit("Split", [x, sizes], *[(1, int(size), *on.shapes[x][2:]) for size in on.constants[sizes]], axis=1)


def reduction(on: Drawing) -> None:
    x = on.pick(rank=4)
    on.emit("ReduceMean", [x], (*on.shapes[x][:2], 1, 1), axes=[2, 3], keepdims=1)
    on.emit("Mul", [x, list(on.shapes)[-1]], on.shapes[x])


def reshape(on: Drawing) -> None:
    x = on.pick(rank=4)
    count = int(np.prod(on.shapes[x]))
    on.emit("Reshape", [x, on.constant(np.array([1, count]))], (1, count))


def transposition(on: Drawing) -> None:
    x = on.pick(rank=4)
    on.emit("Transpose", [x], tuple(on.shapes[x][axis] for axis in (0, 1, 3, 2)), perm=[0, 1, 3, 2])


def dense(on: Drawing) -> None:
    x = on.pick()
    on.emit("MatMul", [x, on.constant(weights(on.shapes[x][-1], 6) / 6)], (*on.shapes[x][:-1], 6))


def softmax(on: Drawing) -> None:
    x = on.pick()
    on.emit("Softmax", [x], on.shapes[x], axis=-1)


STEPS: tuple[Callable[[Drawing], None], ...] = (
    elementwise, elementwise, swish, binary, binary, per_channel, convolution, convolution, normalization, pooling,
    concatenation, split, reduction, reshape, transposition, dense, softmax,
)  # fmt: skip


def random_model(path: Path, seed: int, steps: int = 12, inputs: int = 2) -> Path:
    """Write a model drawn from `seed`; all tensors that nothing reads are outputs, and a few others."""
    drawing = Drawing(seed, inputs)
    while len(drawing.nodes) < steps:
        drawing.random.choice(STEPS)(drawing)
    outputs = drawing.unread()
    neighbours = [name for name in drawing.shapes if name not in outputs and name not in drawing.inputs]
    outputs += drawing.random.sample(neighbours, min(len(neighbours), seed % 3))
    drawing.random.shuffle(outputs)
    return save(path, drawing.nodes, dict.fromkeys(drawing.inputs, SHAPE), outputs, drawing.constants)
