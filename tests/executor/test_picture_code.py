"""Kernels of pictures: compiled for the board, kept in the bundle, and run where nothing compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import MissingExtra
from pipeline.executor.bundle import Bundle
from pipeline.executor.picture_code import compile_pictures
from pipeline.executor.picture_tables import PictureForm
from pipeline.picture.pixels import FORMATS, Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import pictures

ALONE = """
import sys
for name in ("pipeline.tvm.access", "av", "PIL", "cv2", "onnx"):
    sys.modules[name] = None  # importing it fails
from pipeline.core.model_card import Preparation
from pipeline.executor.bundle import Bundle
from pipeline.picture.pixels import FORMATS, Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import pictures
bundle = Bundle.load(sys.argv[1])
picture_input = PictureInput(bundle.plan.inputs[0], Preparation(scale=255), (), bundle.pictures)
for name in FORMATS:
    pixels = Pixels(name, 64, 48)
    print(int(PreparationStage(pixels, picture_input)(pictures.random_picture(pixels)).sum(dtype="int64")))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, digits_onnx: Path) -> Path:
    folder = tmp_path_factory.mktemp("pictures") / "digits.bundle"
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False).save(folder)
    return folder


def test_a_bundle_prepares_every_format_where_nothing_compiles(saved: Path, root: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", ALONE, saved], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == 0, process.stderr
    picture_input = PictureInput(Bundle.load(saved).plan.inputs[0], Preparation(scale=255))
    sums = []
    for name in FORMATS:
        pixels = Pixels(name, 64, 48)
        sums.append(int(PreparationStage(pixels, picture_input)(pictures.random_picture(pixels)).sum(dtype="int64")))
    assert list(map(int, process.stdout.split())) == sums


def test_they_are_kept_when_a_loaded_bundle_is_saved(saved: Path, tmp_path: Path) -> None:
    Bundle.load(saved).save(tmp_path / "copy.bundle")
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (saved, tmp_path / "copy.bundle")]
    assert manifests[0]["pictures"]["library"]["file"] == "pictures.so"
    assert manifests[1]["pictures"] == manifests[0]["pictures"]


def test_without_a_compiler_a_bundle_without_kernels_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("x", (17, 19, 3), "float16")
    monkeypatch.setitem(sys.modules, "tvm", None)
    monkeypatch.delitem(sys.modules, "pipeline.tvm.access", raising=False)
    monkeypatch.delitem(sys.modules, "pipeline.executor.kernels.picture", raising=False)
    with pytest.raises(MissingExtra, match="no kernel for pictures of nv12; build it again"):
        PreparationStage(Pixels("nv12", 64, 48), PictureInput(spec, Preparation()))


@pytest.mark.parametrize(("triple", "cpu"), [("aarch64-linux-gnu", "cortex-a72"), ("x86_64-linux-gnu", "haswell")])
def test_they_are_compiled_for_another_board(triple: str, cpu: str) -> None:
    device = Device("cpu", "cpu", target={"kind": "llvm", "mtriple": triple, "mcpu": cpu})
    code = compile_pictures(PictureForm(3, "int8", last=True), device)
    assert code.machine == triple.partition("-")[0]
    assert ("avx2" in code.features) == (cpu == "haswell")


def test_processors_with_narrower_vectors_give_the_same() -> None:
    """Vectors of 8 and of 4 values, which any x86 processor has."""
    pixels, spec = Pixels("yuv420p", 100, 60), TensorSpec("x", (1, 3, 33, 47))
    array, outputs = pictures.random_picture(pixels), []
    for cpu in ("haswell", "x86-64"):
        device = Device("cpu", "cpu", target={"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu})
        code = compile_pictures(PictureForm(3, "float32", last=False), device, ["yuv420p"])
        outputs.append(PreparationStage(pixels, PictureInput(spec, Preparation(scale=255), (), code))(array))
    reference, _ = pictures.prepare(pixels, array, (47, 33), 3, Preparation(sampling="bilinear"))
    for output in outputs:
        assert np.abs(output[0].transpose(1, 2, 0) - reference).max() <= 0.501
