"""ResNet-18 for 224 x 224 pixels with random weights, its batch norms folded; and the same quantised for VTA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx_network import CLASSES, INPUT, OUTPUT, OnnxNetwork, frame

from pipeline.quantization.quantize import quantize

SIDE = 224
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))

_BRANCH = 0.5
"""Of a residual branch's size; sums would grow from block to block otherwise."""


class _Network(OnnxNetwork):
    """The layers of this network."""

    def weights(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        return self.constant(name, self.random.standard_normal(shape) * scale)

    def block(self, name: str, source: str, channels: tuple[int, int], stride: int) -> str:
        outputs = (channels[1], channels[1])
        first = self.add("Relu", f"{name}.relu1", self.convolution(f"{name}.conv1", source, channels, 3, stride))
        second = self.convolution(f"{name}.conv2", first, outputs, 3, gain=_BRANCH)
        if stride > 1:
            # The factor of 2 in a weight's size keeps the size behind a relu; there is none here, and 0.7 squared is
            # about half: the shortcut passes on its input's size, as one without a convolution does.
            source = self.convolution(f"{name}.short", source, channels, 1, stride, gain=0.7)
        return self.add("Relu", f"{name}.relu2", self.add("Add", f"{name}.add", second, source))


def model() -> onnx.ModelProto:
    """Return the network."""
    network = _Network(np.random.default_rng(0))
    source = network.add("Relu", "relu1", network.convolution("conv1", INPUT, (3, 64), 7, 2))
    source = network.add("MaxPool", "pool1", source, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    width = 64
    for number, (channels, stride) in enumerate(STAGES, 1):
        for part in range(2):
            shape = (width, channels)
            source = network.block(f"layer{number}.{part}", source, shape, 1 if part else stride)
            width = channels
    flat = network.add("Flatten", "flat", network.add("GlobalAveragePool", "mean", source))
    weights = network.weights("dense.weight", (CLASSES, width), float(np.sqrt(1 / width)))
    network.add("Gemm", OUTPUT, flat, weights, network.weights("dense.bias", (CLASSES,), 0.05), transB=1)
    return network.model("resnet18", SIDE)


def write(folder: Path) -> tuple[Path, Path]:
    """Write the network, and the same quantised with powers of two, and return the files."""
    plain, quantized = folder / "resnet18.onnx", folder / "resnet18-int8.onnx"
    onnx.save(model(), plain)
    quantize(plain, [frame(seed, SIDE) for seed in range(2)], quantized, power_of_two=True)
    return plain, quantized
