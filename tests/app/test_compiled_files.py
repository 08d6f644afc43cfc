"""A file that a vendor's compiler has made is a model of an application: OpenVINO's, in a file of EPContext."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.workflow import model_cache
from tests.support import app_models, compiled_files
from tests.support.media import identity
from tests.support.onnx_models import node, save
from tests.support.openvino_plugin import TARGET, compile_file, require_device

CARD = """
task = "classify"
decoder = "classes"
labels = [{labels}]

[preparation]
scale = 1

[parameters]
activation = "none"
top = 1

[compiled]
ms = 0.5
"""

APP = """
[stream.a]
source = "-"

[stream.b]
source = "-"

[model.squares]
file = "-"

[model.levels]
file = "levels.onnx"
board = "board.json"
reads = "squares"
for_each = "boxes"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a compiled classifier of a crop's brightness, its card, and a board."""
    require_device()
    levels = (np.arange(app_models.LEVELS, dtype=np.float32) + 1) * 25 / 255
    # The nearest level has the largest product, less half of its square.
    weights = {"w": np.stack([levels, 0 * levels, 0 * levels]), "b": -levels * levels / 2}
    nodes = [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "f"), node("Gemm", "f w b", "y")]
    body = save(tmp_path / "body.onnx", nodes, {"x": (1, 3, 8, 8)}, ["y"], weights)
    compile_file(body, tmp_path / "levels.onnx", is_embedded=False)
    labels = ", ".join(f'"level {number}"' for number in range(app_models.LEVELS))
    (tmp_path / "levels.toml").write_text(CARD.format(labels=labels))
    devices = [{"name": "cpu", "kind": "cpu", "cores": [0]}, {"name": "npu", "kind": "onnxruntime", "target": TARGET}]
    (tmp_path / "board.json").write_text(json.dumps({"board": {"name": "b", "devices": devices}}))
    return tmp_path


def test_it_runs_on_each_crop_of_two_streams(folder: Path) -> None:
    squares = [[(number % 8, 1, number % 10), (3, 5, 7)] for number in range(12)]
    pictures = [app_models.scene(pair) for pair in squares]
    file = folder / "app.toml"
    file.write_text(APP)
    frames: list[AppFrame] = []
    sources = {"a": app_models.Scenes(pictures), "b": app_models.Scenes(pictures[::-1])}
    with pipeline.load_app(
        file, sources=sources, bundles={"squares": app_models.detector()}, on_frame=frames.append
    ) as running:
        assert [stage.device for stage in running.pipelines["levels"].plan.stages] == ["npu"]
        books = running.run()
    assert all((book.taken, book.delivered) == (12, 12) for book in books.values())
    for name, expected in (("a", squares), ("b", squares[::-1])):
        results = [frame.results["levels"] for frame in frames if frame.stream == name]
        for boxes, pair in zip(results, expected, strict=True):
            rows = zip(boxes.boxes, boxes.attributes["levels"], strict=True)
            answers = {(box[0] // 8, box[1] // 8): classes.names[0] for box, classes in rows}
            assert answers == {(column, row): f"level {level}" for column, row, level in pair}


def test_a_context_that_has_changed_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "m_ctx.bin").write_bytes(b"one")
    model = compiled_files.context(tmp_path / "m.onnx", embed_mode=0, ep_cache_context="m_ctx.bin")

    def is_built() -> bool:
        return model_cache.find_or_build(model, lambda: identity((8, 8, 3)), {})[1]

    assert [is_built(), is_built()] == [True, False]
    (tmp_path / "m_ctx.bin").write_bytes(b"two")
    assert is_built()
