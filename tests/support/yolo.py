"""A network of YOLOv8n's kind, small: SiLU behind each convolution, C2f blocks, pooling pyramid, upsampling, heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.onnx_models import Arrays, node, save, weights

_WIDTH = 16


class Network:
    """Nodes and constants, appended one after the other."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: Arrays = {}
        self.channels: dict[str, int] = {"image": 3}

    def append(self, kind: str, sources: str, channels: int, **attributes: Any) -> str:
        """Append an operator, and return the name of its result."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(node(kind, sources, name, name, **attributes))
        self.channels[name] = channels
        return name

    def convolve(self, source: str, channels: int, kernel: int = 3, stride: int = 1, *, plain: bool = False) -> str:
        """Append a convolution, and SiLU unless it is `plain`."""
        read, number = self.channels[source], len(self.nodes)
        self.constants[f"w{number}"] = weights(channels, read, kernel, kernel) * (2 / (read * kernel**2)) ** 0.5
        self.constants[f"b{number}"] = weights(channels) / 4
        pads, strides = [kernel // 2] * 4, [stride, stride]
        sums = self.append("Conv", f"{source} w{number} b{number}", channels, pads=pads, strides=strides)
        return sums if plain else self.append("Mul", f"{sums} {self.append('Sigmoid', sums, channels)}", channels)

    def c2f(self, source: str, channels: int, *, shortcut: bool = True) -> str:
        """Append a convolution, a bottleneck on half of its channels, and one of all of these together."""
        half = channels // 2
        number, features = len(self.nodes), self.convolve(source, channels, 1)
        first_half, second_half = f"left{number}", f"right{number}"
        self.nodes.append(
            node("Split", features, f"{first_half} {second_half}", f"split{number}", axis=1, num_outputs=2)
        )
        self.channels |= {first_half: half, second_half: half}
        bottleneck = self.convolve(self.convolve(second_half, half), half)
        bottleneck = self.append("Add", f"{second_half} {bottleneck}", half) if shortcut else bottleneck
        return self.convolve(
            self.append("Concat", f"{first_half} {second_half} {bottleneck}", 3 * half, axis=1), channels, 1
        )

    def pyramid(self, source: str, channels: int) -> str:
        """Append max pools of pools, and a convolution of all."""
        levels = [self.convolve(source, channels // 2, 1)]
        for _ in range(3):
            pool = self.append("MaxPool", levels[-1], channels // 2, kernel_shape=[5, 5], pads=[2] * 4)
            levels.append(pool)
        return self.convolve(self.append("Concat", " ".join(levels), 2 * channels, axis=1), channels, 1)


def write(path: Path, size: int) -> Path:
    """Write the network for square images as ONNX."""
    network = Network()
    fine = network.c2f(network.convolve(network.convolve("image", _WIDTH, 3, 2), 2 * _WIDTH, 3, 2), 2 * _WIDTH)
    coarse = network.c2f(network.convolve(fine, 4 * _WIDTH, 3, 2), 4 * _WIDTH)
    coarse = network.pyramid(coarse, 4 * _WIDTH)
    network.constants["scales"] = weights(4) * 0 + [1, 1, 2, 2]
    up = network.append("Resize", f"{coarse} - scales", 4 * _WIDTH, mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")  # fmt: skip
    fused = network.append("Concat", f"{up} {fine}", 6 * _WIDTH, axis=1)
    head = network.c2f(fused, 2 * _WIDTH, shortcut=False)
    outputs = [network.convolve(network.convolve(each, 2 * _WIDTH), 24, 1, plain=True) for each in (head, coarse)]
    network.constants["scales"] = network.constants["scales"].astype("float32")
    return save(path, network.nodes, {"image": (1, 3, size, size)}, outputs, network.constants, opset=18)
