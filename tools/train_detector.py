"""Trainer of the demo's detector: ``python -m tools.train_detector -o pipeline/demo/detector.onnx``.

It learns from made scenes with the training digits, at last with rounded weights and activations.  With one release of
PyTorch, one kind of processor and one number of threads, the file comes out the same each time.

The shipped file is from this command: 25 to 35 minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pipeline.core.model_card import FILL
from pipeline.demo.scenes import Scene, scenes
from tools.detector_network import CLASSES, MEAN, SIDE, STD, STRIDES, Tensors, fold, forward, initial, save

SHAPES = ((160, 160), (160, 120), (160, 90), (120, 160))
"""Widths and heights of the scenes inside of the margins."""

LEVEL_SIZE = 40
"""Longer side, in pixels, of digits that both levels find equally well."""

LEAST_OBJECTNESS = 0.15
"""Objectness of the cells that learn boxes and classes."""

BATCH = 32
LEARNING_RATE = 4e-3
ROUNDED_LEARNING_RATE = 5e-4
WEIGHT_DECAY = 1e-3

Examples = tuple[Any, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_detector", description="Train the demo's detector.")
    parser.add_argument("-o", "--output", type=Path, default=Path("detector.onnx"), help="the ONNX file to write")
    parser.add_argument("--scenes", type=int, default=8000, help="scenes to learn from")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the scenes in floats")
    parser.add_argument("--rounded-epochs", type=int, default=3, help="further passes with rounded numbers")
    parser.add_argument("--seed", type=int, default=1, help="of scenes, weights, order and distortions")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; part of what makes a run repeatable")
    options = parser.parse_args(arguments)
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

    A target is objectness, class, left, top, right and bottom.
    """
    pictures = np.full((count, SIDE, SIDE, 3), FILL, np.uint8)
    targets = np.zeros((count, sum((SIDE // stride) ** 2 for stride in STRIDES), 6), np.float32)
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

    Objectness falls with the distance from the digit's middle, and with that of the digit's size from the level's.  So
    one cell is the best also with rounded numbers: of two equal ones, these would choose another box than the floats.
    """
    levels = []
    for stride, sign in zip(STRIDES, (1, -1), strict=True):
        cells = SIDE // stride
        target = np.zeros((cells, cells, 6), np.float32)
        middles = (np.arange(cells) + 0.5) * stride
        for box, kind in zip(scene.boxes + np.array(corner * 2, np.float32), scene.classes, strict=True):
            suitability = np.clip(1 - (sign * (max(box[2:] - box[:2]) - LEVEL_SIZE) + 4) / 16, 0, 1)
            x, y = ((middles - (box[axis] + box[axis + 2]) / 2) / stride for axis in (0, 1))
            objectness = suitability * (1 - x**2 - y[:, None] ** 2)
            nearer = objectness > target[..., 0]
            target[nearer] = [0, kind, *box]
            target[nearer, 0] = objectness[nearer]
        levels.append(target.reshape(-1, 6))
    return np.concatenate(levels)


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
    positive = targets[..., 0] > LEAST_OBJECTNESS
    count = positive.sum().clamp(min=1)
    objects = functional.binary_cross_entropy_with_logits(outputs[..., 4], targets[..., 0], reduction="sum")
    chosen, boxes = outputs[positive], targets[..., 2:][positive]
    wanted = functional.one_hot(targets[..., 1][positive].long(), CLASSES).float()
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


if __name__ == "__main__":
    main()
