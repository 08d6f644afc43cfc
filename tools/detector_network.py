"""Network of the demo's detector: its layers, for PyTorch and as ONNX.

A detector without anchors in YOLOX's form, small and made for int8: each activation is clipped at 127 times a power of
two, so that calibration finds just that scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from pipeline.core.card_file import CARD_KEY, encode_card
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.system.files import write_atomically

SIDE = 160
CLASSES = 10
STRIDES = (8, 16)
MEAN, STD = 0.5, 0.504
"""Of pixels from 0 to 1: black and white become -0.992 and 0.992, just within 127 steps of 1/128."""

ACTIVATION, BOXES, SCORES = 127 / 32, 127 / 64, 127 / 32
"""Bounds of activations, of the boxes' numbers, and of the scores before their sigmoid."""

EPSILON = 1e-5
"""Of batch norms, the default of PyTorch."""

CARD = ModelCard(
    task="detect",
    preparation=Preparation(resize="letterbox", mean=(MEAN,), std=(STD,), sampling="bilinear"),
    labels=tuple(map(str, range(CLASSES))),
    decoder="yolox",
    # No digit lies on another one.
    parameters={"strides": list(STRIDES), "pixels": False, "agnostic": True},
)

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """A convolution; its output is named like itself.

    Attributes
    ----------
    channels : (int, int)
        Going in and coming out.  Multiples of 16 fill VTA's blocks.
    bounds : (float, float)
        Of what comes out.
    """

    name: str
    source: str
    channels: tuple[int, int]
    kernel: int = 3
    stride: int = 1
    bounds: tuple[float, float] = (0.0, ACTIVATION)


BODY = (
    Layer("stem", "image", (3, 16), stride=2),
    Layer("quarter1", "stem", (16, 32), stride=2),
    Layer("quarter2", "quarter1", (32, 32)),
    Layer("eighth1", "quarter2", (32, 48), stride=2),
    Layer("eighth2", "eighth1", (48, 48)),
    Layer("eighth3", "eighth2", (48, 48)),
    Layer("small", "eighth3", (48, 48)),
    Layer("sixteenth1", "eighth3", (48, 80), stride=2),
    Layer("sixteenth2", "sixteenth1", (80, 80)),
    Layer("large", "sixteenth2", (80, 64)),
)
HEADS = tuple(
    Layer(f"{level}.{part}", level, (channels, count), kernel=1, bounds=(-bound, bound))
    for level, channels in (("small", 48), ("large", 64))
    for part, count, bound in (("box", 4, BOXES), ("object", 1, SCORES), ("class", CLASSES, SCORES))
)


def initial(random: Any) -> Tensors:
    """Return He-normal weights and neutral batch norms."""
    tensors: Tensors = {}
    for layer in (*BODY, *HEADS):
        entering, leaving = layer.channels
        deviation = (2 / (entering * layer.kernel**2)) ** 0.5 if layer in BODY else 0.01
        shape = leaving, entering, layer.kernel, layer.kernel
        tensors[f"{layer.name}.weight"] = torch.randn(shape, generator=random) * deviation
        # Few cells have a digit: beginning there saves the first hundreds of steps.
        tensors[f"{layer.name}.bias"] = torch.full((leaving,), -4.0 if layer.name.endswith("object") else 0.0)
        if layer in BODY:
            tensors[f"{layer.name}.scale"] = torch.ones(leaving)
            tensors[f"{layer.name}.mean"] = torch.zeros(leaving)
            tensors[f"{layer.name}.variance"] = torch.ones(leaving)
    return tensors


def fold(tensors: Tensors) -> Tensors:
    """Return weights and biases alone, with the batch norms in them."""
    result: Tensors = {}
    for layer in (*BODY, *HEADS):
        weight, bias = (tensors[f"{layer.name}.{part}"].detach() for part in ("weight", "bias"))
        if layer in BODY:
            factor = tensors[f"{layer.name}.scale"].detach() / (tensors[f"{layer.name}.variance"] + EPSILON).sqrt()
            weight, bias = weight * factor[:, None, None, None], bias - tensors[f"{layer.name}.mean"] * factor
        result |= {f"{layer.name}.weight": weight, f"{layer.name}.bias": bias}
    return result


def forward(tensors: Tensors, images: Any, *, training: bool = False, rounded: bool = False) -> Any:
    """Return each cell's numbers: four of its box, and logits of object and classes."""
    values = {"image": rounding(images, 1 / 128) if rounded else images}
    for layer in (*BODY, *HEADS):
        weight, bias = tensors[f"{layer.name}.weight"], tensors[f"{layer.name}.bias"]
        if rounded:
            weight = rounded_weights(weight)
        norm = f"{layer.name}.scale" in tensors
        padding = layer.kernel // 2
        sums = functional.conv2d(values[layer.source], weight, None if norm else bias, layer.stride, padding)
        if norm:
            scale, mean, variance = (tensors[f"{layer.name}.{part}"] for part in ("scale", "mean", "variance"))
            sums = functional.batch_norm(sums, mean, variance, scale, bias, training, 0.05, EPSILON)
        result = sums.clamp(*layer.bounds)
        values[layer.name] = rounding(result, layer.bounds[1] / 127) if rounded else result
    parts = ("box", "object", "class")
    levels = [torch.cat([values[f"{level}.{part}"] for part in parts], 1).flatten(2) for level in ("small", "large")]
    return torch.cat(levels, 2).transpose(1, 2)


def rounding(values: Any, step: float) -> Any:
    """Round to multiples of a step, passing gradients through."""
    return values + ((values / step).round() * step - values).detach()


def rounded_weights(weight: Any) -> Any:
    """Round weights as `quantize` does for VTA: even bytes, and a power of two for each channel."""
    largest = weight.detach().abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-8)
    unit = 2 * torch.exp2(torch.ceil(torch.log2(largest / 127)))
    return weight + ((weight / unit).round().clamp(-63, 63) * unit - weight).detach()


def save(tensors: Tensors, path: Path) -> None:
    """Write the network as ONNX, with boxes and scores as YOLOX writes them."""
    constants = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    nodes = []
    for layer in (*BODY, *HEADS):
        bounds = [f"{bound:g}" for bound in layer.bounds]
        constants |= {name: np.float32(bound) for name, bound in zip(bounds, layer.bounds, strict=True)}
        inputs = [layer.source, f"{layer.name}.weight", f"{layer.name}.bias"]
        pads, strides = [layer.kernel // 2] * 4, [layer.stride] * 2
        kernel = [layer.kernel] * 2
        sums = f"{layer.name}.conv"
        nodes.append(helper.make_node("Conv", inputs, [sums], sums, kernel_shape=kernel, pads=pads, strides=strides))
        nodes.append(helper.make_node("Clip", [sums, *bounds], [layer.name], layer.name))
    constants["rows"] = np.array([1, 5 + CLASSES, -1])
    for level in ("small", "large"):
        scores = [f"{level}.{part}.score" for part in ("object", "class")]
        nodes += [helper.make_node("Sigmoid", [score.removesuffix(".score")], [score], score) for score in scores]
        nodes.append(helper.make_node("Concat", [f"{level}.box", *scores], [f"{level}.map"], f"{level}.map", axis=1))
        nodes.append(helper.make_node("Reshape", [f"{level}.map", "rows"], [f"{level}.rows"], f"{level}.rows"))
    nodes.append(helper.make_node("Concat", ["small.rows", "large.rows"], ["rows.all"], "rows.all", axis=2))
    nodes.append(helper.make_node("Transpose", ["rows.all"], ["boxes"], "boxes", perm=[0, 2, 1]))
    count = sum((SIDE // stride) ** 2 for stride in STRIDES)
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", floats, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("boxes", floats, [1, count, 5 + CLASSES])],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="soc-pipeline")
    helper.set_model_props(model, {CARD_KEY: encode_card(CARD)})
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))
