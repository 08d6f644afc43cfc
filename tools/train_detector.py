"""Trainer of the demo's detector: ``python -m tools.train_detector -o pipeline/demo/detector.onnx``.

A detector without anchors in YOLOX's form, small and made for int8: each activation is clipped at 127 times a power of
two, so that calibration finds just that scale, and the last steps train with rounded weights and activations.  It
learns from made scenes with the training digits.  With one release of PyTorch, one kind of processor and one number of
threads, the file comes out the same each time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from pipeline.demo.scenes import Scene, scenes
from pipeline.system.files import write_atomically

SIDE = 160
CLASSES = 10
STRIDES = (8, 16)
MEAN, STD = 0.5, 0.504
"""Of pixels from 0 to 1: black and white become -0.992 and 0.992, just within 127 steps of 1/128."""

FILL = 114
"""Grey of the margins around pictures that are no squares."""

SHAPES = ((160, 160), (160, 120), (160, 90), (120, 160))
"""Widths and heights of the scenes inside of the margins."""

ACTIVATION, BOXES, SCORES = 127 / 32, 127 / 64, 127 / 16
"""Bounds of activations, of the boxes' numbers, and of the scores before their sigmoid."""

BATCH = 32
LEARNING_RATE = 4e-3
ROUNDED_LEARNING_RATE = 5e-4
WEIGHT_DECAY = 1e-3
EPSILON = 1e-5

Tensors = dict[str, Any]
Examples = tuple[Any, Any]


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


def main() -> None:
    """Train, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_detector", description="Train the demo's detector.")
    parser.add_argument("-o", "--output", type=Path, default=Path("detector.onnx"), help="the ONNX file to write")
    parser.add_argument("--scenes", type=int, default=6000, help="scenes to learn from")
    parser.add_argument("--epochs", type=int, default=7, help="passes over the scenes in floats")
    parser.add_argument("--rounded-epochs", type=int, default=2, help="further passes with rounded numbers")
    parser.add_argument("--seed", type=int, default=1, help="of scenes, weights, order and distortions")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; part of what makes a run repeatable")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # With the seed and the number of threads, this makes equal runs give equal files.
    torch.use_deterministic_algorithms(True)
    random = torch.Generator().manual_seed(options.seed)
    examples = make_examples(options.seed, options.scenes)
    tensors = initial(random)
    fit(random, tensors, examples, options.epochs, LEARNING_RATE)
    tensors = fold(tensors)
    fit(random, tensors, examples, options.rounded_epochs, ROUNDED_LEARNING_RATE)
    save(tensors, options.output)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


def make_examples(seed: int, count: int) -> Examples:
    """Make scenes in margins; return pictures, and targets of each cell.

    A target is class, left, top, right and bottom; the class is -1 where nothing is, and -2 where either is right.
    """
    pictures = np.full((count, SIDE, SIDE, 3), FILL, np.uint8)
    targets = np.zeros((count, sum((SIDE // stride) ** 2 for stride in STRIDES), 5), np.float32)
    streams = [scenes(seed * 100 + number, *shape, training=True) for number, shape in enumerate(SHAPES)]
    # Squares are most instructive, since they have no margins.
    order = np.random.default_rng(seed).choice(len(SHAPES), count, p=(0.4, 0.3, 0.2, 0.1))
    for number, kind in enumerate(order):
        scene = next(streams[kind])
        width, height = SHAPES[kind]
        left, top = (SIDE - width) // 2, (SIDE - height) // 2
        pictures[number, top : top + height, left : left + width] = scene.picture
        targets[number] = assign(scene, (left, top))
    return torch.from_numpy(pictures), torch.from_numpy(targets)


def assign(scene: Scene, corner: tuple[int, int]) -> np.ndarray:
    """Return the targets of all cells.

    A digit belongs to the cells around its middle, on the level of its size or, between two sizes, on both.
    """
    levels = []
    for stride, (loose_least, least, most, loose_most) in zip(
        STRIDES, ((0, 0, 44, 56), (28, 36, 999, 999)), strict=True
    ):
        cells = SIDE // stride
        target = np.zeros((cells, cells, 5), np.float32)
        target[..., 0] = -1
        centres = (np.arange(cells) + 0.5) * stride
        # First what is loose, then what is sure.
        for sure, reach in ((False, 1.5), (True, 0.75)):
            for box, kind in zip(scene.boxes + np.array(corner * 2, np.float32), scene.classes, strict=True):
                size = max(box[2:] - box[:2])
                if not (least <= size < most if sure else loose_least <= size < loose_most):
                    continue
                near_x, near_y = (abs(centres - (box[axis] + box[axis + 2]) / 2) < reach * stride for axis in (0, 1))
                target[np.ix_(near_y, near_x)] = [kind if sure else -2, *box]
        levels.append(target.reshape(-1, 5))
    return np.concatenate(levels)


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


def fit(random: Any, tensors: Tensors, examples: Examples, epochs: int, rate: float) -> None:
    """Train in place, with AdamW and a one-cycle learning rate; with rounded numbers behind the norms' folding."""
    rounded = "stem.scale" not in tensors
    pictures, targets = examples
    for name, tensor in tensors.items():
        tensor.requires_grad_(not name.endswith((".mean", ".variance")))
    steps = epochs * (len(pictures) // BATCH)
    if not steps:
        return
    optimizer = torch.optim.AdamW([t for t in tensors.values() if t.requires_grad], weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    places = cells()
    begin = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for batch in islice(batches(random, len(pictures)), len(pictures) // BATCH):
            outputs = forward(tensors, distort(random, pictures[batch]), training=True, rounded=rounded)
            parts = loss(outputs, targets[batch], places)
            optimizer.zero_grad()
            sum(parts).backward()
            optimizer.step()
            schedule.step()
            losses.append([part.item() for part in parts])
        means = ", ".join(f"{value:.3f}" for value in np.mean(losses, 0))
        print(f"epoch {epoch + 1}/{epochs}: {means}; {time.perf_counter() - begin:.0f} s", flush=True)


def batches(random: Any, count: int) -> Iterator[Any]:
    """Yield the indices of batches."""
    yield from torch.randperm(count, generator=random).split(BATCH)


def distort(random: Any, pictures: Any) -> Any:
    """Exchange colours, invert, and blur by chance; return images as the network takes them."""
    count = len(pictures)
    images = pictures.permute(0, 3, 1, 2).float() / 255
    images = images[:, torch.randperm(3, generator=random)]
    # Margins remain grey, as they are.
    margins = (pictures == FILL).all(3)[:, None]
    inverted = (torch.rand((count, 1, 1, 1), generator=random) < 0.5) & ~margins
    images = torch.where(inverted, 1 - images, images)
    blurred = functional.avg_pool2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
    images = images + torch.rand((count, 1, 1, 1), generator=random) * 0.9 * (blurred - images)
    return (images - MEAN) / STD


def cells() -> tuple[Any, Any]:
    """Return the corners of all cells in cells, and their strides."""
    corners, strides = [], []
    for stride in STRIDES:
        y, x = torch.meshgrid(torch.arange(SIDE // stride), torch.arange(SIDE // stride), indexing="ij")
        corners.append(torch.stack([x, y], 2).reshape(-1, 2))
        strides.append(torch.full((corners[-1].shape[0], 1), stride))
    return torch.cat(corners).float(), torch.cat(strides).float()


def loss(outputs: Any, targets: Any, places: tuple[Any, Any]) -> list[Any]:
    """Return the losses of boxes (twice), objects and classes."""
    corners, strides = places
    kinds, positive = targets[..., 0], targets[..., 0] >= 0
    count = positive.sum().clamp(min=1)
    sure = kinds > -2
    objects = functional.binary_cross_entropy_with_logits(
        outputs[..., 4][sure], positive[sure].float(), reduction="sum"
    )
    chosen, boxes = outputs[positive], targets[..., 1:][positive]
    wanted = functional.one_hot(kinds[positive].long(), CLASSES).float()
    classes = functional.binary_cross_entropy_with_logits(chosen[:, 5:], wanted, reduction="sum")
    corners, strides = (part.expand(len(outputs), -1, -1)[positive] for part in (corners, strides))
    middles, sizes = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    numbers = torch.cat([middles / strides - corners, torch.log(sizes / strides)], 1)
    distances = (chosen[:, :4] - numbers).abs().sum()
    own_middles, own_sizes = (chosen[:, :2] + corners) * strides, chosen[:, 2:4].exp() * strides
    low, high = (
        pick(own_middles + sign * own_sizes / 2, edge)
        for pick, sign, edge in ((torch.maximum, -1, boxes[:, :2]), (torch.minimum, 1, boxes[:, 2:]))
    )
    common = (high - low).clamp(min=0).prod(1)
    overlap = common / (sizes.prod(1) + own_sizes.prod(1) - common)
    return [5 * (1 - overlap).sum() / count, distances / count, objects / count, classes / count]


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
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
