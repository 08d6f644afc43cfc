"""Demo images: scikit-learn's handwritten digits, enlarged for the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.system.optional import require

SIDE = 32
"""Height and width of the network's input in pixels."""

HOLD_OUT_EVERY = 4
"""Images 0, 4, 8, ... are never trained on."""

FILE = Path(__file__).with_name("digits.onnx")
"""The trained network, as shipped; ``tools/digits_network.py`` describes it."""

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


def held_out() -> tuple[Images, Labels]:
    """Return the 450 images kept out of training, and the digit in each.

    The images, in 0 to 1, bright on dark, are every fourth of the data set, beginning with the first, as frames of
    batch size 1. The same 13 writers occur on both sides, so accuracy on them says how well the network knows these
    writers' digits, not a stranger's. Raises `MissingExtra` if scikit-learn, which ships the images, is not installed.
    """
    images, labels = _load()
    # Slices with steps: contiguous, they pass into a pipeline without a copy.
    return np.ascontiguousarray(images[::HOLD_OUT_EVERY]), np.ascontiguousarray(labels[::HOLD_OUT_EVERY])


def training() -> tuple[Images, Labels]:
    """Return the other 1347 images, like `held_out`."""
    images, labels = _load()
    training_rows = np.arange(len(labels)) % HOLD_OUT_EVERY != 0
    return images[training_rows], labels[training_rows]


def prepare(images: NDArray[np.floating]) -> Images:
    """Turn images [N, 8, 8] of values 0 to 16 into frames, float32 [N, 1, 1, 32, 32].

    Values are divided by 16; each side is enlarged four times by bilinear interpolation between pixel centres, with the
    border repeated.
    """
    weights = interpolation(images.shape[-1], SIDE)
    # Rows and columns apart, as bilinear interpolation allows: W image W^T.
    pictures = np.einsum("yi,nij,xj->nyx", weights, np.asarray(images, np.float64) / 16, weights)
    return np.ascontiguousarray(pictures[:, None, None], dtype=np.float32)


def _load() -> tuple[Images, Labels]:
    datasets = require("sklearn.datasets", "demo", "the demo's images")
    digits = datasets.load_digits()
    return prepare(digits.images), np.asarray(digits.target, dtype=np.int64)


def interpolation(source: int, target: int) -> NDArray[np.float64]:
    """Return the (target, source) matrix of interpolation weights."""
    # Pixels are known at their middles, hence the halves; clipping repeats the border.
    centres = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    return np.maximum(0.0, 1.0 - np.abs(centres[:, None] - np.arange(source)[None, :]))
