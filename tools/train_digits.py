"""Trainer of the digits' classifier: ``python -m tools.train_digits -o digits.onnx``.

The held-out images are used once, at the end, to print the accuracy; nothing is chosen by them.  With one
release of PyTorch, one kind of processor and one number of threads, the file comes out the same each time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.demo import digits
from pipeline.errors import PipelineError
from pipeline.system.optional import require
from tools import digits_network as network

BATCH = 32
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-3
BUFFERS = (".mean", ".variance")
"""Name endings of running moments, which are counted and not learnt by gradients."""

Tensors = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_digits", description="Train the classifier of digits.")
    parser.add_argument("-o", "--output", type=Path, default=Path("digits.onnx"), help="the ONNX file to write")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the 1347 training images")
    parser.add_argument("--seed", type=int, default=1, help="of weights, order and distortions")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; part of what makes a run repeatable")
    options = parser.parse_args(arguments)
    try:
        train(options.output, options.epochs, options.seed, options.threads)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def train(output: Path, epochs: int, seed: int, threads: int) -> float:
    """Train from seeded weights, write the file, and return held-out accuracy."""
    torch = require("torch", "torch", "training the demo's network")
    torch.set_num_threads(threads)
    # With the seed and the number of threads, this makes equal runs give equal files.
    torch.use_deterministic_algorithms(True)
    random = torch.Generator().manual_seed(seed)
    tensors = initial(torch, random)
    fit(torch, random, tensors, epochs)
    network.save({name: tensor.detach().numpy() for name, tensor in tensors.items()}, output)
    accuracy = evaluate(torch, tensors)
    size = output.stat().st_size
    print(f"{output}: {size:,} bytes, {network.flops() / 1e6:.1f} MFLOP, {accuracy:.2%} of the held-out images right")
    return accuracy


def initial(torch: Any, random: Any) -> Tensors:
    """Return He-normal weights and neutral batch norms, trainable but for running moments."""
    tensors: Tensors = {}
    for operator in network.operators():
        for name, shape in network.weight_shapes(operator).items():
            if name.endswith(".weight"):
                # He et al., 2015: keeps the variance through layers with ReLU.
                deviation = (2 / np.prod(shape[1:])) ** 0.5
                tensors[name] = torch.randn(shape, generator=random) * deviation
            else:
                # A batch norm that changes nothing: scale and variance 1, bias and mean 0.
                tensors[name] = torch.ones(shape) if name.endswith((".scale", ".variance")) else torch.zeros(shape)
            tensors[name].requires_grad_(not name.endswith(BUFFERS))
    return tensors


def forward(torch: Any, tensors: Tensors, images: Any, training: bool) -> Any:
    """Compute a batch's logits by the operator table."""
    values = {network.INPUT: images}
    for operator in network.operators():
        inputs = [values[name] for name in operator.inputs]
        weights = [tensors[name] for name in network.weight_shapes(operator)]
        values[operator.name] = _compute(torch.nn.functional, operator.kind, inputs, weights, training)
    return values[network.operators()[-1].name]


def _compute(functional: Any, kind: str, inputs: list[Any], weights: list[Any], training: bool) -> Any:
    if kind == "BatchNormalization":
        scale, bias, mean, variance = weights
        # A momentum of 0.1, the default of PyTorch.
        return functional.batch_norm(inputs[0], mean, variance, scale, bias, training, 0.1, network.EPSILON)
    return {
        "Conv": lambda: functional.conv2d(inputs[0], weights[0], padding=1),
        "Relu": lambda: functional.relu(inputs[0]),
        "MaxPool": lambda: functional.max_pool2d(inputs[0], 2),
        "Add": lambda: inputs[0] + inputs[1],
        "GlobalAveragePool": lambda: inputs[0].mean((2, 3), keepdim=True),
        "Flatten": lambda: inputs[0].flatten(1),
        "Gemm": lambda: functional.linear(inputs[0], *weights),
    }[kind]()


def fit(torch: Any, random: Any, tensors: Tensors, epochs: int) -> None:
    """Train in place, with AdamW and a one-cycle learning rate."""
    images, labels = (torch.from_numpy(array) for array in digits.training())
    # Frames have an axis in front for their batch, which training makes itself.
    images = images[:, 0]
    steps = epochs * (len(images) // BATCH)
    optimizer = torch.optim.AdamW([t for t in tensors.values() if t.requires_grad], weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for epoch in range(epochs):
        # Whole batches only: a last one of few images would disturb the batch norms' running moments.
        indices = torch.randperm(len(images), generator=random)[: len(images) // BATCH * BATCH]
        for batch in indices.split(BATCH):
            logits = forward(torch, tensors, distort(torch, random, images[batch]), training=True)
            loss = torch.nn.functional.cross_entropy(logits, labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}/{epochs}: loss of the last batch {loss.item():.3f}", flush=True)


def distort(torch: Any, random: Any, images: Any) -> Any:
    """Randomly turn, scale and shift images, like other handwriting."""
    # Four numbers per image, from -1 to 1.
    turn, scale, *shift = torch.rand((4, len(images)), generator=random) * 2 - 1
    # Up to 11 degrees, 12 percent in size, and 2 pixels of 32 in each direction.
    turn, scale = turn * 0.2, 1 + scale * 0.12
    cosine, sine = scale * turn.cos(), scale * turn.sin()
    rows = [cosine, -sine, shift[0] * 0.12, sine, cosine, shift[1] * 0.12]
    affine = torch.stack(rows, dim=1).reshape(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(affine, images.shape, align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)


def evaluate(torch: Any, tensors: Tensors) -> float:
    """Return the share of correctly classified held-out images."""
    images, labels = digits.held_out()
    with torch.inference_mode():
        logits = forward(torch, tensors, torch.from_numpy(images[:, 0]), training=False)
    return float(np.mean(logits.argmax(1).numpy() == labels))


if __name__ == "__main__":
    sys.exit(main())
