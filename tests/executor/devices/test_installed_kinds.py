"""Kinds of device that other packages add by an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.board import board_file
from pipeline.core.board.board import Device
from pipeline.core.board.device_kinds import GROUP, device_kind, find_kind, kind_names
from pipeline.errors import BoardError
from pipeline.executor import devices
from pipeline.remote.device_threads import offered_kinds
from tests.support.distributions import write_distribution
from tests.support.onnx_models import by_onnxruntime, node, save, weights

ABACUS = '''
"""Stages that ONNX's own reference evaluates."""

import onnx
from onnx.reference import ReferenceEvaluator

from pipeline.core.board.device_kinds import DeviceKind
from pipeline.executor.devices.model_runtime import ModelRuntime, OpenedModel

KIND = DeviceKind("abacus", "abacus_device:AbacusRuntime", model_format="onnx")


class AbacusRuntime(ModelRuntime):
    title, package, extra, target_keys = "Abacus", "onnx", "onnx", ("beads",)

    @staticmethod
    def serialize(source, device):
        return source.onnx().SerializeToString()

    @staticmethod
    def find_fallbacks(model, device):
        return {}

    def open_model(self, model, stage, cores):
        evaluator = ReferenceEvaluator(onnx.load_model_from_string(model))
        names = [spec.name for spec in stage.inputs]
        return OpenedModel(lambda arrays: evaluator.run(None, dict(zip(names, arrays, strict=True))))
'''

RUN = """
import sys
import numpy as np
import pipeline

model, board, bundle, results = sys.argv[1:]
graph = pipeline.read(model)
plan = pipeline.plan(graph, board=board, devices=["cpu", "counter"])
pipeline.build(graph, plan).save(bundle)
with pipeline.load(bundle) as running:
    (result,) = running.map([{"x": np.ones((1, 4, 6, 6), np.float32)}])
np.save(results, np.asarray(result))
"""


def test_a_kind_of_another_package_plans_builds_saves_loads_and_runs(tmp_path: Path, root: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    write_distribution(site, "abacus_device", ABACUS, {GROUP: {"abacus": "abacus_device:KIND"}})
    nodes = [node("Conv", "x w", "a", "first"), node("Relu", "a", "b", "middle"), node("Conv", "b w", "y", "last")]
    model = save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)})
    board = tmp_path / "board.toml"
    board.write_text(
        '[[devices]]\nname = "cpu"\n\n[[devices]]\nname = "counter"\nkind = "abacus"\ntarget = { beads = 3 }\n'
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(root)))}
    line = [
        sys.executable,
        "-c",
        RUN,
        str(model),
        str(board),
        *(str(tmp_path / name) for name in ("m.bundle", "result.npy")),
    ]
    result = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    reference = by_onnxruntime(model, {"x": np.ones((1, 4, 6, 6), np.float32)})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), reference, atol=1e-4)
    assert (tmp_path / "m.bundle" / "stage1.onnx").is_file()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_it_is_listed_offered_and_named_in_files(folder: Path) -> None:
    text = "from pipeline.core.board.device_kinds import DeviceKind\nKIND = DeviceKind('sundial', 'sundials:Runtime')"
    write_distribution(folder, "sundials", text, {GROUP: {"sundial": "sundials:KIND"}})
    assert kind_names()[-1] == "sundial"
    assert "sundial" in offered_kinds()
    assert device_kind("sundial").adapter == "sundials:Runtime"
    board = board_file.decode(b'[[devices]]\nname = "garden"\nkind = "sundial"', "board")
    with pytest.raises(BoardError, match="adapter 'sundials:Runtime' of devices of kind 'sundial' cannot be imported"):
        devices.create(board.devices[0])


@pytest.mark.parametrize(
    ("module", "text", "cause"),
    [
        ("candle_clocks", "import wax_that_is_nowhere", "No module named 'wax_that_is_nowhere'"),
        ("water_clocks", "KIND = 'water'", "must be a DeviceKind of this name; it is 'water'"),
    ],
)
def test_a_broken_package_is_named_and_breaks_no_other_kind(folder: Path, module: str, text: str, cause: str) -> None:
    write_distribution(folder, module, text, {GROUP: {"clock": f"{module}:KIND"}})
    assert find_kind("cuda") is not None
    with pytest.raises(BoardError, match=rf"in the package {module} 1\.0.*{cause}"):
        devices.create(Device("clock", "clock"))
    with pytest.warns(RuntimeWarning, match=f"{module}.*{cause}"):
        names = kind_names()
    assert "cuda" in names
    assert "clock" not in names


def test_an_adapter_that_is_none_is_refused(folder: Path) -> None:
    text = "from pipeline.core.board.device_kinds import DeviceKind\nKIND = DeviceKind('hourglass', 'glasses:KIND')"
    write_distribution(folder, "glasses", text, {GROUP: {"hourglass": "glasses:KIND"}})
    with pytest.raises(BoardError, match="'hourglass' is no DeviceRuntime"):
        devices.create(Device("glass", "hourglass"))
