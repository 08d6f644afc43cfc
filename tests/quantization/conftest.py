"""The demo's network, quantised with the demo's images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.demo import digits
from pipeline.quantization.quantize import Frames, quantize


@pytest.fixture(scope="session")
def training() -> Frames:
    """Some of the images that the network was trained with."""
    pytest.importorskip("sklearn")
    images, _ = digits.training()
    return [{"image": image} for image in images[:40]]


@pytest.fixture(scope="session")
def held_out() -> tuple[Frames, np.ndarray]:
    """The images that it has never seen, and their labels."""
    pytest.importorskip("sklearn")
    images, labels = digits.held_out()
    return [{"image": image} for image in images], labels


@pytest.fixture(scope="session")
def quantized_model(digits_onnx: Path, training: Frames, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network with scales that are powers of two."""
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("quantized") / "digits-int8.onnx"
    quantize(digits_onnx, training, path, power_of_two=True)
    return path
