"""Small quantised models, and what they compute in exact integers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.support.onnx_models import node, save

NUMBERS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


@dataclass(frozen=True)
class Product:
    """One convolution or product between quantised tensors ``x`` and ``y``, with all it reads."""

    kind: str
    attributes: dict[str, Any]
    shape: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    relu: bool = False

    def save(self, path: Path) -> Path:
        """Write it as a model from a float32 ``x`` to a quantised ``y``."""
        axis: dict[str, Any] = {"axis": 0 if self.kind == "Conv" else 1} if self.constants["sw"].size > 1 else {}
        nodes = [
            node("QuantizeLinear", "x sx zx", "xq"),
            node("DequantizeLinear", "xq sx zx", "xd"),
            node("DequantizeLinear", "wq sw zw", "w", **axis),
            node("DequantizeLinear", "bq sb", "b", "", **dict.fromkeys(axis, 0)),
            node(self.kind, "xd w b", "p", **self.attributes),
            *([node("Relu", "p", "r")] if self.relu else []),
            node("QuantizeLinear", f"{'r' if self.relu else 'p'} sy zy", "y"),
        ]
        dtypes = {"y": NUMBERS[str(self.constants["zy"].dtype)]}
        return save(path, nodes, {"x": self.shape}, ["y"], self.constants, dtypes=dtypes)

    def frame(self, seed: int = 0) -> np.ndarray:
        """Return an input that is whole bytes when quantised."""
        zero, limits = int(self.constants["zx"]), np.iinfo(self.constants["zx"].dtype)
        integers = np.random.default_rng(seed).integers(limits.min, limits.max + 1, self.shape) - zero
        frame: np.ndarray = (integers * np.float64(self.constants["sx"])).astype(np.float32)
        return frame

    def compute_reference(self, x: np.ndarray) -> np.ndarray:
        """Return ``y``: exact sums, one multiplication in float32, and rounding of halves to even."""
        constants = self.constants
        bytes_in, bytes_out = np.iinfo(constants["zx"].dtype), np.iinfo(constants["zy"].dtype)
        zero = int(constants["zx"])
        data = np.clip(np.rint(x / constants["sx"]) + zero, bytes_in.min, bytes_in.max).astype(np.int64) - zero
        if self.kind == "Conv":
            sums = _convolve(data, constants["wq"].astype(np.int64), self.attributes)
        else:
            sums = data @ constants["wq"].astype(np.int64)
        shape = (1, -1) + (1,) * (sums.ndim - 2)
        sums += constants["bq"].astype(np.int64).reshape(shape)
        # Rounded twice, as ONNX Runtime's.
        factor = np.float32(constants["sx"]) * constants["sw"].astype(np.float32) / np.float32(constants["sy"])
        scaled = np.rint(sums.astype(np.float32) * factor.reshape(shape if factor.size > 1 else ()))
        shifted = np.maximum(scaled, 0 if self.relu else -np.inf) + int(constants["zy"])
        result: np.ndarray = np.clip(shifted, bytes_out.min, bytes_out.max).astype(constants["zy"].dtype)
        return result


def _convolve(data: np.ndarray, weights: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    (top, left, bottom, right), groups = attributes["pads"], attributes.get("group", 1)
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (rows, columns), (step, stride) = attributes["dilations"], attributes["strides"]
    height = (padded.shape[2] - (weights.shape[2] - 1) * rows - 1) // step + 1
    width = (padded.shape[3] - (weights.shape[3] - 1) * columns - 1) // stride + 1
    depth, makes = weights.shape[1], weights.shape[0] // groups
    sums = np.zeros((len(data), len(weights), height, width), np.int64)
    for h, w in np.ndindex(weights.shape[2:]):
        window = padded[:, :, h * rows :, w * columns :][:, :, ::step, ::stride][:, :, :height, :width]
        for group in range(groups):
            channels = slice(group * makes, (group + 1) * makes)
            part = window[:, group * depth : (group + 1) * depth]
            sums[:, channels] += np.einsum("nchw,oc->nohw", part, weights[channels, :, h, w])
    return sums


def scales(draw: random.Random, channels: int, terms: int) -> dict[str, np.ndarray]:
    """Return scales and zero points of data, weights and results, and a bias in the unit of the sums."""
    inputs, outputs = (draw.choice((np.uint8, np.int8)) for _ in range(2))
    generator = np.random.default_rng(draw.randint(0, 1 << 30))
    per_channel = draw.random() < 0.5
    sw = generator.uniform(0.001, 0.02, channels if per_channel else ()).astype(np.float32)
    sx = np.float32(generator.uniform(0.005, 0.05))
    zero = {np.uint8: (0, 255, 128, 97), np.int8: (0, -128, 127, -5)}
    return {
        "sx": np.array(sx),
        "zx": np.array(draw.choice(zero[inputs]), inputs),
        "sw": sw,
        "zw": np.zeros(sw.shape, np.int8),
        "sb": (sx * sw).astype(np.float32),
        "bq": generator.integers(-5000, 5000, channels).astype(np.int32),
        "sy": np.array(np.float32(sx * sw.mean() * 75 * np.sqrt(terms))),
        "zy": np.array(draw.choice(zero[outputs]), outputs),
    }


def convolution(draw: random.Random) -> Product:
    """Return any convolution: odd channels, strides, padding, dilation, groups, also one for each channel."""
    groups = draw.choice((1, 1, 1, 2, 3))
    depth, makes = draw.choice((1, 3, 4, 7, 16, 33)), draw.choice((1, 5, 16, 17, 40))
    if draw.random() < 0.2:
        groups, depth, makes = draw.choice((3, 16, 37)), 1, 1
    size = [draw.choice((1, 1, 2, 3, 5)) for _ in range(2)]
    attributes = {
        "group": groups,
        "kernel_shape": size,
        "dilations": [draw.choice((1, 2)) if each < 3 else 1 for each in size],
        "strides": [draw.choice((1, 1, 2, 3)) for _ in range(2)],
        "pads": [draw.randint(0, each - 1) for each in [*size, *size]],
    }
    shape = (draw.choice((1, 1, 2)), groups * depth, draw.randint(5, 15), draw.randint(5, 15))
    constants = scales(draw, groups * makes, depth * size[0] * size[1])
    values = np.random.default_rng(draw.randint(0, 1 << 30)).integers(-128, 128, (groups * makes, depth, *size))
    constants["wq"] = values.astype(np.int8)
    return Product("Conv", attributes, shape, (groups * makes,), constants, draw.random() < 0.3)


def depthwise(draw: random.Random) -> Product:
    """Return a convolution with one or two outputs for each channel, some of its weights the lowest byte."""
    channels, size = draw.choice((1, 13, 16, 24, 40)), [draw.choice((1, 2, 3, 3, 5, 7)) for _ in range(2)]
    outputs = channels * draw.choice((1, 1, 2) if channels > 1 else (1,))
    attributes = {
        "group": channels,
        "kernel_shape": size,
        "dilations": [draw.choice((1, 1, 2)) if each < 5 else 1 for each in size],
        "strides": [draw.choice((1, 1, 2)) for _ in range(2)],
        "pads": [draw.randint(0, each // 2) for each in [*size, *size]],
    }
    constants = scales(draw, outputs, size[0] * size[1])
    values = np.random.default_rng(draw.randint(0, 1 << 30)).integers(-127, 128, (outputs, 1, *size))
    if draw.random() < 0.5:
        values[0] = -128
    constants["wq"] = values.astype(np.int8)
    shape = (draw.choice((1, 2)), channels, draw.randint(7, 15), draw.randint(7, 15))
    return Product("Conv", attributes, shape, (outputs,), constants, draw.random() < 0.3)


def dense(draw: random.Random) -> Product:
    """Return a product with a matrix of weights."""
    rows, depth, outputs = draw.choice((1, 2, 17)), draw.choice((3, 8, 33, 64)), draw.choice((1, 10, 16, 65))
    constants = scales(draw, outputs, depth)
    values = np.random.default_rng(draw.randint(0, 1 << 30)).integers(-128, 128, (depth, outputs))
    constants["wq"] = values.astype(np.int8)
    return Product("Gemm", {}, (rows, depth), (outputs,), constants, draw.random() < 0.3)
