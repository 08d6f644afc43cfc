"""The content of a file says what it is, whatever it is called; what cannot be read is named."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import MissingExtra, ModelError
from pipeline.frontends import formats
from pipeline.frontends.formats import FORMATS, Format, recognise

PROGRAM = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { negative(%x) }'


@pytest.mark.parametrize(
    ("content", "reference"),
    [
        (PROGRAM, formats.RELAY),
        (f"// printed today\n/* by\n me */ {PROGRAM}", formats.RELAY),
        ("def @main() { 1 }", formats.RELAY),
        ("fn (%x) { %x }", formats.RELAY),
        ("v0.0.4\ndef @main() { 1 }", formats.RELAY),
        (' \n{"root": 1, "nodes": [{"type_key": ""}]}', formats.RELAY),
        ('{"root_index": 1, "nodes": []}', formats.RELAX),
        (b"\x08\x07\x12\x00", formats.ONNX),
        (b"\x1c\x00\x00\x00TFL3", formats.TFLITE),
        (b"\x1c\x00\x00\x00TFL3 edgetpu-custom-op", formats.COMPILED),
        (b"\x08\x0d:\x10\x0a\x0e\x22\x09EPContext", formats.COMPILED),
        (b"RKNN\x00\x00\x00\x00", formats.COMPILED),
        (b"\x01HEF\x00\x00", formats.COMPILED),
        (b"ftrt\x00\x00", formats.COMPILED),
        (b'\x0d\x00\x00\x00{"task": "a"}ftrt', formats.COMPILED),
    ],
)
def test_what_is_recognised(tmp_path: Path, content: str | bytes, reference: Format) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert recognise(path) is reference


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello", "is text of another kind"),
        (b"\x00\x01\x02", "is of an unknown format"),
        (b"{}", "is JSON of another kind"),
        (b'{"nodes": [], "arg_nodes": [], "heads": []}', "is a compiled graph of TVM's graph executor"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "is an old checkpoint of torch.save"),
        (b"PK\x03\x04", "is a damaged ZIP archive"),
        (b"\x7fELF", "is a compiled library"),
        (b"import torch\nmodel = torch.nn.Linear(1, 2)\n", "is Python, which is never executed"),
        (b"# by TVM\nfrom tvm.script import ir as I\n\n@I.ir_module\nclass Module:\n    pass\n", "is TVMScript"),
        (b'metadata = tvm.ir.load_json("""{', "is TVMScript"),
        (b"\x80\x04\x95\x1d\x00", "is a pickle, which is never loaded"),
        (b'\x30\x00\x00\x00\x00\x00\x00\x00{"w":{}}', "holds parameters only (safetensors)"),
        (b"GGUF\x03\x00", "holds parameters only (GGUF)"),
        (b'<?xml version="1.0"?>\n<net name="m" version="11">', "is an OpenVINO model"),
        (b"\x89HDF\r\n", "is an HDF5 file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "is a pointer of Git LFS"),
        (b"\n<!-- x -->\n<!DOCTYPE html>\n<p>404", "is an HTML page"),
        (b'<html lang="en">', "is an HTML page"),
        (b"\x08\x00\x00\x00ORTM\x00\x00", "is an .ort file"),
        (b"CYPTRKNN", "is an encrypted .rknn file"),
        (b"\x18\x00\x00\x00ET12", "is a program of ExecuTorch"),
        (b"LITERTLM\x01", "is a language model for LiteRT-LM"),
        (gzip.compress(b"x", mtime=0), "is compressed with gzip"),
        (b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7", "holds parameters only"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(ModelError) as failure:
        pipeline.read(path)
    assert f"{str(path)!r} {reason}" in str(failure.value)
    assert str(failure.value).endswith(
        "supported is an ONNX file, a Relay program, a Relax module, an exported PyTorch program, a TFLite model, or a "
        "file compiled for a chip (.rknn, .hef, .engine)"
    )


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".relay", ".pt2"])
def test_a_signature_weighs_more_than_a_suffix(tmp_path: Path, suffix: str) -> None:
    for content, reason in (
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
        (b"<!DOCTYPE html>", "is an HTML page"),
        (b"", "is empty"),
    ):
        (tmp_path / f"model{suffix}").write_bytes(content)
        with pytest.raises(ModelError, match=reason):
            pipeline.read(tmp_path / f"model{suffix}")


@pytest.mark.parametrize("entry", FORMATS, ids=str)
def test_an_entry_leads_to_its_frontend(entry: Format) -> None:
    try:
        package = entry.module()
    except MissingExtra as error:
        pytest.skip(str(error))
    assert callable(package.load)
    assert not entry.types or callable(package.from_object)
    if entry.library is not None:
        assert callable(entry.module("reference").evaluate)
        assert callable(entry.module("merging").merge)
    if entry.parts:
        assert callable(entry.module("extraction").Extractor.extract)


def test_archives_and_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(ModelError, match="is a ZIP archive"):
        pipeline.read(tmp_path / "m.zip")
    np.save(tmp_path / "m.npy", np.zeros(3))
    with pytest.raises(ModelError, match="is a NumPy array"):
        pipeline.read(tmp_path / "m.npy")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (["m/data.pkl", "m/data/0"], "is a checkpoint of torch.save"),
        (["m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"], "is a TorchScript archive"),
        (["m/data/aotinductor/model/m.so"], "is a package that AOTInductor compiled"),
        (["config.json", "model.weights.h5"], "is a Keras model"),
        (["pose_detector.tflite", "pose_landmarks_detector.tflite"], "is a bundle of MediaPipe's"),
        (["x.npy"], "holds NumPy arrays"),
    ],
)
def test_archives_of_models(tmp_path: Path, entries: list[str], reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        for name in entries:
            archive.writestr(name, "")
    with pytest.raises(ModelError, match=reason):
        pipeline.read(tmp_path / "m.pt")


@pytest.mark.parametrize("entry", ["m/models/model.json", "serialized_exported_program.json"])
def test_exported_programs_are_recognised(tmp_path: Path, entry: str) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr(entry, "{}")
    assert recognise(tmp_path / "m.zip") is formats.TORCH


def test_what_is_no_model_at_all() -> None:
    with pytest.raises(ModelError, match=r"a list is no model; give an onnx\.ModelProto, a torch\.export\.Exp"):
        pipeline.read([1, 2])


def test_parameters_belong_to_relay_only(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x07\x12\x00")
    with pytest.raises(ModelError, match="is an ONNX file and holds its parameters itself"):
        pipeline.read(tmp_path / "m.onnx", params={})


def test_relay_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_bytes(PROGRAM.encode() + b"\xff")
    with pytest.raises(ModelError, match=r"m.relay' is not text: byte \d+ is not UTF-8"):
        pipeline.read(tmp_path / "m.relay")


def test_damaged_relax(tmp_path: Path) -> None:
    for content in ('{"root_index": 1, "nodes": [', '{"root_index": 0, "nodes": [{"type": "NoSuch"}]}'):
        (tmp_path / "m.relax").write_text(content)
        with pytest.raises(ModelError, match="cannot be read: "):
            pipeline.read(tmp_path / "m.relax")
    (tmp_path / "m.relax").write_text(json.dumps({"root_index": 0, "nodes": [{"type": "int", "data": 1}]}))
    with pytest.raises(ModelError, match="holds no module, but a int"):
        pipeline.read(tmp_path / "m.relax")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "trap"

    class Opens:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return Path.touch, (trap,)  # type: ignore[return-value]

    (tmp_path / "m.pt").write_bytes(pickle.dumps(Opens()))
    with zipfile.ZipFile(tmp_path / "m.pth", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(Opens()))
    for name in ("m.pt", "m.pth"):
        with pytest.raises(ModelError, match=r"is a pickle|is a checkpoint of torch\.save"):
            pipeline.read(tmp_path / name)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Opens()))
    assert trap.exists()


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder; give the path of"):
        pipeline.read(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="is a SavedModel of TensorFlow; convert it to TFLite or ONNX"):
        pipeline.read(tmp_path)
    (tmp_path / "manifest.sha256").touch()
    with pytest.raises(ModelError, match=r"is a bundle, which is built already; run it, or load it by pipeline\.load"):
        pipeline.read(tmp_path)


def test_a_folder_with_a_manifest_of_another_kind_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(ModelError, match="is a folder; give the path of"):
        pipeline.read(tmp_path)
    (tmp_path / "Manifest.json").touch()
    (tmp_path / "Data").mkdir()
    with pytest.raises(ModelError, match="is a package of Core ML"):
        pipeline.read(tmp_path)


def test_a_folder_with_models_names_one(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.tflite", "c.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"is a folder with models; give one of them, such as .*a\.tflite'"):
        pipeline.read(tmp_path)
