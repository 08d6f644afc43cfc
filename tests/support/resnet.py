"""A network of ResNet-50's kind: its 53 convolutions in bottlenecks, narrow, trained on handwritten digits.

Some channels are dead, as they are in networks that were trained for long: their batch norms multiply with next to
nothing.  Folded, their weights are tiny, and only their bias matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.onnx_models import Arrays, node, save

BLOCKS = (3, 4, 6, 3)
"""Bottlenecks of each stage, as in ResNet-50."""

CONVOLUTIONS = 1 + sum(3 * blocks + 1 for blocks in BLOCKS)
DEAD = 1e-9
"""What dead channels are multiplied with."""

_WIDTH, _GROWTH, _CLASSES = 8, 4, 10
_EPOCHS, _BATCH = 3, 64


class Unit(nn.Sequential):  # type: ignore[misc]
    """A convolution with its batch norm, one in twenty of whose channels is dead."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs))
        self.dead = torch.rand(outputs) < 0.05

    def kill(self) -> None:
        """Make the dead channels dead again, whatever a step of training did to them."""
        with torch.no_grad():
            self[1].weight[self.dead] = DEAD

    def fold(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and bias with the batch norm in them."""
        convolution, norm = self[0], self[1]
        factor = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
        bias = norm.bias.detach() - norm.running_mean * factor
        return (convolution.weight.detach() * factor[:, None, None, None]).numpy(), bias.numpy()


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions beside a shortcut, which is a convolution where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * _GROWTH
        self.units = nn.ModuleList([Unit(inputs, width, 1), Unit(width, width, 3, stride), Unit(width, outputs, 1)])
        self.shortcut = Unit(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Any) -> Any:
        first, second, third = self.units
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return torch.relu(third(torch.relu(second(torch.relu(first(x))))) + shortcut)


class ResNet(nn.Module):  # type: ignore[misc]
    """A stem, the bottlenecks, a mean, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Unit(1, _WIDTH, 7, 2)
        widths = [_WIDTH * 2**stage for stage in range(len(BLOCKS))]
        strides = [2 if stage and not block else 1 for stage, count in enumerate(BLOCKS) for block in range(count)]
        block_widths = [width for width, count in zip(widths, BLOCKS, strict=True) for _ in range(count)]
        ends = [_WIDTH, *(width * _GROWTH for width in block_widths)]
        blocks = [Bottleneck(*each) for each in zip(ends, block_widths, strides, strict=False)]
        self.blocks = nn.Sequential(*blocks)
        self.dense = nn.Linear(ends[-1], _CLASSES)

    def forward(self, x: Any) -> Any:
        pooled = nn.functional.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        return self.dense(self.blocks(pooled).mean((2, 3)))

    def units(self) -> Iterator[Unit]:
        """Yield all convolutions with their norms."""
        return (each for each in self.modules() if isinstance(each, Unit))


def train(images: np.ndarray, labels: np.ndarray) -> ResNet:
    """Return the network, trained for images ``float32[n, 1, 32, 32]``; takes about twenty seconds."""
    threads = torch.get_num_threads()
    # Its layers are so small that a second thread costs more than it helps, much more on a busy machine.
    torch.set_num_threads(1)
    try:
        return _train(torch.from_numpy(images), torch.from_numpy(labels))
    finally:
        torch.set_num_threads(threads)


def _train(data: torch.Tensor, labels: torch.Tensor) -> ResNet:
    torch.manual_seed(0)
    network = ResNet()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for _ in range(_EPOCHS):
        for indices in torch.randperm(len(data)).split(_BATCH)[:-1]:
            for unit in network.units():
                unit.kill()
            loss = nn.functional.cross_entropy(network(data[indices]), labels[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for unit in network.units():
        unit.kill()
    network.eval()
    return network


def export(network: ResNet, path: Path) -> Path:
    """Write the network as ONNX, batch norms folded."""
    nodes: list[Any] = []
    constants: Arrays = {}

    def convolve(name: str, unit: Unit, source: str) -> str:
        constants[f"{name}.w"], constants[f"{name}.b"] = unit.fold()
        convolution = unit[0]
        pads, strides = [convolution.padding[0]] * 4, list(convolution.stride)
        read = f"{source} {name}.w {name}.b"
        nodes.append(node("Conv", read, f"{name}.sums", name, pads=pads, strides=strides))
        return f"{name}.sums"

    def rectify(source: str) -> str:
        nodes.append(node("Relu", source, f"{source}.relu", f"{source}.relu"))
        return f"{source}.relu"

    stem = rectify(convolve("stem", network.stem, "image"))
    nodes.append(node("MaxPool", stem, "pooled", "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    last = "pooled"
    for number, block in enumerate(network.blocks):
        shortcut = last if block.shortcut is None else convolve(f"b{number}.shortcut", block.shortcut, last)
        for position, unit in enumerate(block.units):
            last = convolve(f"b{number}.conv{position}", unit, rectify(last) if position else last)
        nodes.append(node("Add", f"{last} {shortcut}", f"b{number}.sum", f"b{number}.add"))
        last = rectify(f"b{number}.sum")
    nodes += [node("GlobalAveragePool", last, "mean", "mean"), node("Flatten", "mean", "flat", "flat")]
    constants |= {"d.w": network.dense.weight.detach().numpy(), "d.b": network.dense.bias.detach().numpy()}
    nodes.append(node("Gemm", "flat d.w d.b", "scores", "dense", transB=1))
    return save(path, nodes, {"image": (1, 1, 32, 32)}, ["scores"], constants)
