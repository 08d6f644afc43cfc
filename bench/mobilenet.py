"""A network of MobileNetV2's kind for 224 x 224 pixels, with random weights, quantised for VTA.

Seventeen inverted residuals: a pointwise convolution widens, a depthwise one filters, a pointwise one narrows.  An
accelerator that multiplies blocks of channels is good at the pointwise ones, and the CPU at the depthwise ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx_network import CLASSES, INPUT, OUTPUT, OnnxNetwork, frame

from pipeline.quantization.quantize import quantize

BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""By how much a block widens, its channels, how many there are of it, and the stride of the first (Sandler et al.,
"MobileNetV2: Inverted Residuals and Linear Bottlenecks", table 2)."""

_LAST = 1280
_BRANCH = 0.5
"""Of a residual branch's size; sums would grow from block to block otherwise."""


class _Network(OnnxNetwork):
    """The layers of this network."""

    def block(self, name: str, source: str, channels: tuple[int, int], widening: int, stride: int) -> str:
        inputs, outputs = channels
        width, value = inputs * widening, source
        if widening > 1:
            value = self.rectified(f"{name}.widen", value, (inputs, width), 1)
        value = self.rectified(f"{name}.depthwise", value, (width, width), 3, stride, width)
        is_residual = stride == 1 and inputs == outputs
        # The factor of 2 in a weight's size is for a relu behind it; there is none, and 0.7 squared is about half.
        value = self.convolution(f"{name}.narrow", value, (width, outputs), 1, gain=_BRANCH if is_residual else 0.7)
        return self.add("Add", f"{name}.add", value, source) if is_residual else value


def model(side: int = 224, share: float = 1.0) -> onnx.ModelProto:
    """Return the network for square pictures, its channels a share of the paper's."""
    network = _Network(np.random.default_rng(0))
    width = _channels(32, share)
    value = network.rectified("stem", INPUT, (3, width), 3, 2)
    for number, (widening, outputs, count, stride) in enumerate(BLOCKS, 1):
        for part in range(count):
            channels = (width, _channels(outputs, share))
            value = network.block(f"block{number}.{part}", value, channels, widening, 1 if part else stride)
            width = channels[1]
    value = network.rectified("last", value, (width, _channels(_LAST, share)), 1)
    flat = network.add("Flatten", "flat", network.add("GlobalAveragePool", "mean", value))
    scale = np.sqrt(1 / _channels(_LAST, share))
    weights = network.constant(
        "dense.weight", network.random.standard_normal((CLASSES, _channels(_LAST, share))) * scale
    )
    network.add("Gemm", OUTPUT, flat, weights, network.constant("dense.bias", np.zeros(CLASSES)), transB=1)
    return network.model("mobilenet", side)


def depthwise_names() -> Iterator[str]:
    """Yield the names of the depthwise convolutions."""
    for number, (_, _, count, _) in enumerate(BLOCKS, 1):
        yield from (f"block{number}.{part}.depthwise" for part in range(count))


def write(folder: Path, side: int = 224, share: float = 1.0) -> Path:
    """Write the network, quantised with powers of two, and return the file."""
    plain, quantized = folder / "mobilenet.onnx", folder / "mobilenet-int8.onnx"
    onnx.save(model(side, share), plain)
    quantize(plain, [frame(seed, side) for seed in range(2)], quantized, power_of_two=True)
    return quantized


def _channels(count: int, share: float) -> int:
    # Multiples of 8, as the paper has them.
    return max(8, int(count * share / 8 + 0.5) * 8)
