"""Damaged ONNX, TFLite, PyTorch and parameter files end in one of our own errors, soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm

from tests.support.mutations import check, damage, damaged_archive, damaged_fields, read_archive, write_archive
from tests.support.onnx_models import node, save, weights
from tests.support.relay_programs import HEADER

pytestmark = [
    # PyTorch's own, from its export.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

UNREAD = ("/serialization_id", "/sample_inputs/model.pt")
"""Members of PyTorch's archives."""

Damage = Callable[[bytes, int], bytes]
RELAY = f"""{HEADER}
def @main(%a: Tensor[(2, 4), float32], %w: Tensor[(8, 4), float32], %b: Tensor[(8), float32]) {{
  nn.bias_add(nn.dense(%a, %w, units=8), %b)
}}"""


def onnx_model(path: Path) -> bytes:
    constants = {
        "w": weights(4, 3, 3, 3) / 5,
        "b": weights(4),
        "shape": np.array([1, -1]),
        "d": weights(64, 5) / 8,
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    nodes = [
        node("Conv", "x w b", "c", "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Clip", "c low high", "r", "clip"),
        node("Split", "r", "s t", "split", axis=1, num_outputs=2),
        node("Concat", "t s", "u", "concat", axis=1),
        node("Reshape", "u shape", "f", "flat"),
        node("Gemm", "f d", "y", "dense", alpha=0.5),
    ]
    return save(path, nodes, {"x": (1, 3, 8, 8)}, ["y"], constants, opset=18).read_bytes()


def tflite_model(path: Path) -> bytes:
    # Asked before its tests' module is imported: pytest has that one half, where collecting it was skipped.
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.frontends.tflite.test_tflite import classifier

    return classifier(path).read_bytes()


def torch_model(path: Path) -> bytes:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(network.eval(), (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    # Damage to what the reader leaves alone would be a whole read for nothing.
    members = read_archive(path.read_bytes())
    return write_archive({name: content for name, content in members.items() if not name.endswith(UNREAD)})


def parameters(path: Path) -> bytes:
    np.savez(path, w=weights(8, 4), b=weights(8))
    return path.read_bytes()


def tvm_parameters(path: Path) -> bytes:
    arrays = {"w": tvm.runtime.tensor(weights(8, 4)), "b": tvm.runtime.tensor(weights(8))}
    path.write_bytes(tvm.runtime.save_param_dict(arrays))
    return path.read_bytes()


def by_member(data: bytes, seed: int) -> bytes:
    """Damage an archive's members mostly, and seldom the archive."""
    return damage(data, seed) if seed % 5 == 0 else damaged_archive(data, seed)


def by_field(data: bytes, seed: int) -> bytes:
    """Damage one message of an ONNX model, which remains a protobuf."""
    generator = np.random.default_rng(seed)
    model = onnx.ModelProto.FromString(data)
    parts = [*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output]
    part = parts[generator.integers(len(parts))]
    for attempt in range(20):
        try:
            part.ParseFromString(damage(part.SerializeToString(), seed * 31 + attempt))
        except Exception:  # noqa: BLE001 - protobuf's errors have no common base; the next damage may do
            continue
        return bytes(model.SerializeToString())
    return data


FORMATS: dict[str, tuple[str, Callable[[Path], bytes], Damage]] = {
    "ONNX": ("m.onnx", onnx_model, damage),
    "ONNX by field": ("m.onnx", onnx_model, by_field),
    "TFLite": ("m.tflite", tflite_model, damage),
    "PyTorch": ("m.pt2", torch_model, by_member),
    "PyTorch by field": ("m.pt2", torch_model, damaged_fields),
    "npz": ("m.npz", parameters, by_member),
    "params": ("m.params", tvm_parameters, damage),
}


def options(name: str, folder: Path) -> dict[str, Any]:
    if name.startswith("PyTorch"):
        return {"shapes": {"input": (2, 3, 8, 8)}}
    if name not in ("npz", "params"):
        return {}
    (folder / "m.relay").write_text(RELAY)
    return {"model": folder / "m.relay", "params": folder / FORMATS[name][0]}


def fuzz(name: str, folder: Path, seeds: range) -> int:
    file, make, damage_kind = FORMATS[name]
    data, operands = make(folder / file), options(name, folder)
    assert check(folder / file, data, -1, **operands), "what is not damage is read"
    # Of an archive's few members each is left out many times over; a file that was read is not read again.
    damaged_files = {damage_kind(data, seed): seed for seed in seeds}
    return sum(check(folder / file, content, seed, **operands) for content, seed in damaged_files.items())


@pytest.mark.parametrize("name", FORMATS)
def test_some_damages(tmp_path: Path, name: str) -> None:
    fuzz(name, tmp_path, range(24))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FORMATS)
def test_many_damages(tmp_path: Path, name: str) -> None:
    fuzz(name, tmp_path, range(1000, 2500))


def test_an_archive_of_nothing(tmp_path: Path) -> None:
    assert not check(tmp_path / "m.pt2", write_archive({}), 0)
    assert not check(tmp_path / "m.pt2", write_archive({"m/models/model.json": b"{}"}), 0)
