from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pipeline.demo import digits
from tools import digits_network as network
from tools import train_digits as train


def test_without_torch_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert train.main(["-o", "unused.onnx"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: training the demo's network: needs torch; pip install 'torch<2.14,>=2.6'"
    ]


@pytest.mark.slow
def test_training_repeats_itself_and_the_file_computes_what_was_trained(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    accuracies = [train.train(path, epochs=1, seed=3, threads=2) for path in paths]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert accuracies[0] > 0.9
    random = torch.Generator().manual_seed(3)
    tensors = train.initial(torch, random)
    network.save({name: tensor.detach().numpy() for name, tensor in tensors.items()}, tmp_path / "new.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"])
    image = digits.held_out()[0][0]
    expected = train.forward(torch, tensors, torch.from_numpy(image), training=False).detach().numpy()
    assert session.run(None, {"image": image})[0] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert np.isfinite(expected).all()
