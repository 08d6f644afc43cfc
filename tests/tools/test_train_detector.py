"""The trainer of the demo's detector: its targets, and a file that computes what was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("sklearn")

from pipeline.demo.scenes import Scene  # noqa: E402 - only where PyTorch is
from tools import detector_network as network  # noqa: E402
from tools import train_detector as train  # noqa: E402


def scene(*box: float) -> Scene:
    return Scene(np.zeros((160, 160, 3), np.uint8), np.array([box], np.float32), np.array([7]))


def best(targets: np.ndarray) -> dict[int, float]:
    """Return the best objectness of each stride's cells."""
    parts = np.split(targets[:, 0], [400])
    return {stride: float(part.max()) for stride, part in zip(network.STRIDES, parts, strict=True)}


def test_small_and_large_digits_have_levels_of_their_own() -> None:
    levels = [
        best(train.assign(scene(64 - side / 2, 64 - side / 2, 64 + side / 2, 64 + side / 2), (0, 0)))
        for side in (20, 40, 80)
    ]
    assert levels[0][16] == 0 < levels[0][8]
    # Each finds digits between its size and the other's.
    assert all(0 < value < 0.8 for value in levels[1].values())
    assert levels[2][8] == 0 < levels[2][16]


def test_objectness_falls_with_the_distance_from_a_digit() -> None:
    targets = train.assign(scene(50, 60, 70, 80), (0, 20))
    assert targets.shape == (500, 6)
    fine = targets[:400].reshape(20, 20, 6)
    # Its middle is (60, 90): the middle of column 7, and in row 11.
    assert (fine[11, 7, 0], fine[11, 7, 1]) == (pytest.approx(1 - 0.25**2), 7)
    assert fine[11, 7, 0] > fine[10, 7, 0] > 0 == fine[9, 7, 0] == fine[11, 6, 0]
    assert fine[11, 7, 2:].tolist() == [50, 80, 70, 100]
    assert (targets[400:, 0] == 0).all()


def test_rounded_weights_are_even_bytes_of_a_power_of_two() -> None:
    weight = torch.randn((4, 3, 3, 3), generator=torch.Generator().manual_seed(1))
    rounded = network.rounded_weights(weight)
    largest = weight.abs().amax((1, 2, 3), keepdim=True)
    unit = 2 * torch.exp2(torch.ceil(torch.log2(largest / 127)))
    assert torch.equal(rounded / unit, (rounded / unit).round())
    assert ((rounded / unit).abs() <= 63).all()
    assert ((rounded - weight).abs() <= unit).all()


def test_the_file_computes_what_was_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = network.initial(torch.Generator().manual_seed(3))
    folded = network.fold(tensors)
    network.save(folded, tmp_path / "new.onnx")
    image = torch.rand((1, 3, 160, 160), generator=torch.Generator().manual_seed(4)) * 2 - 1
    with torch.inference_mode():
        normed, plain = network.forward(tensors, image), network.forward(folded, image)
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"])
    output = session.run(None, {"image": image.numpy()})[0]
    assert output.shape == (1, 500, 15)
    expected = np.concatenate([plain[..., :4], plain[..., 4:].sigmoid()], -1)
    assert output == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert plain.numpy() == pytest.approx(normed.numpy(), rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_training_repeats_itself(tmp_path: Path) -> None:
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for path in paths:
        train.main(["-o", str(path), "--scenes", "64", "--epochs", "1", "--rounded-epochs", "1"])
    assert paths[0].read_bytes() == paths[1].read_bytes()
