"""Boxes where only the runtime's modules are: a copy of these, without the others."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipeline
from tests.support import detectors

pytest.importorskip("onnx")
pytest.importorskip("setuptools")
Image = pytest.importorskip("PIL.Image")

CELLS = [(1, 2), (3, 3)]

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime's modules, with a detector's bundle, its model and a photo beside them."""
    folder = tmp_path_factory.mktemp("runtime")
    is_runtime = runpy.run_path(str(root / "distributions" / "parts.py"))["is_runtime"]
    for package in ("pipeline", "boards"):
        for path in (root / package).rglob("*.py"):
            name = path.relative_to(root).as_posix()
            if is_runtime(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / name)
    model = detectors.save_detector(folder / "cells.onnx")
    graph = pipeline.read(model)
    card = pipeline.ModelCard(labels=["square"], decoder="yolox")
    pipeline.build(graph, pipeline.plan(graph, stages=2), card=card).save(folder / "cells.bundle")
    Image.fromarray(detectors.scene(*CELLS)).save(folder / "scene.png")
    return folder


@pytest.fixture
def call(tree: Path, tmp_path: Path) -> Call:
    def run(code: str) -> subprocess.CompletedProcess[str]:
        hidden = "import sys; sys.modules.update(dict.fromkeys(['onnx', 'torch', 'rich']))\n"
        return subprocess.run(
            [sys.executable, "-c", hidden + code],
            cwd=tree,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tree), "OUT": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return run


def command(*words: str) -> str:
    return f"from pipeline.cli import main\nsys.exit(main({list(words)!r}))"


def test_a_detector_s_bundle_gives_boxes(call: Call, tmp_path: Path) -> None:
    sinks = [f"--sink={tmp_path / name}" for name in ("out.jsonl", "out.png")]
    process = call(command("run", "cells.bundle", "--source", "scene.png", *sinks))
    assert (process.returncode, process.stderr) == (0, "")
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [each["box"] for each in line["result"]] == detectors.boxes(*CELLS)
    assert np.asarray(Image.open(tmp_path / "out.png")).shape == (64, 64, 3)
    process = call(command("run", "cells.bundle", "--source", "scene.png"))
    assert process.stdout.startswith("scene: square 1.00 [16 32 32 48], square 1.00 [48 48 64 64]\n")


def test_the_loop_in_python_and_the_node(call: Call) -> None:
    code = """
import pipeline, pipeline.ros.node
for frame in pipeline.stream("cells.bundle", "scene.png"):
    print(frame.detections.boxes.tolist(), frame.picture.shape)
"""
    process = call(code)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == f"{[[float(x) for x in box] for box in detectors.boxes(*CELLS)]} (64, 64, 3)\n"


APP = """
[stream.left]
source = "scene.png"
[stream.right]
source = "scene.png"
[model.cells]
file = "cells.bundle"
[track.things]
reads = "cells"
[model.inside]
file = "cells.bundle"
reads = "things"
for_each = "boxes"
margin = 0.5
[trigger.pairs]
reads = "cells"
when = "count(cells) == 2"
to = "{out}/events.jsonl"
[sink.lines]
to = "{out}/{stream}.jsonl"
reads = "things"
"""


def test_an_application_runs_and_is_predicted(call: Call, tree: Path, tmp_path: Path) -> None:
    (tree / "app.toml").write_text(APP.replace("{out}", str(tmp_path)))
    process = call(command("app", "run", "app.toml", "--json"))
    assert (process.returncode, process.stderr) == (0, "")
    books = json.loads(process.stdout)
    assert [book["delivered"] for book in books["streams"].values()] == [1, 1]
    assert books["crops"]["inside"]["delivered"] == 4
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sorted(event["stream"] for event in events) == ["left", "right"]
    (line,) = map(json.loads, (tmp_path / "left.jsonl").read_text().splitlines())
    assert [each["box"] for each in line["result"]] == detectors.boxes(*CELLS)
    process = call(command("app", "simulate", "app.toml", "--json"))
    assert (process.returncode, process.stderr) == (0, "")
    assert json.loads(process.stdout)["streams"]["left"]["frames_per_s"] > 0


def test_several_sources_of_one_bundle(call: Call, tmp_path: Path) -> None:
    sources = ("--source", "scene.png", "--source", "scene.png")
    process = call(command("run", "cells.bundle", *sources, f"--sink={tmp_path}/{{stream}}.jsonl"))
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "source0: 1 frames\nsource1: 1 frames\n"
    assert (tmp_path / "source1.jsonl").stat().st_size


@pytest.mark.parametrize(
    "code",
    [
        command("run", "cells.onnx", "--source", "scene.png"),
        "import pipeline\npipeline.stream('cells.onnx', 'scene.png')",
    ],
)
def test_a_model_names_what_is_missing(call: Call, code: str) -> None:
    process = call(code)
    assert process.returncode
    line = process.stderr.splitlines()[-1]
    assert "'cells.onnx' is a model, and soc-stages-runtime only runs bundles" in line
    assert "'soc-pipeline build cells.onnx -o cells.bundle'" in line
    assert "install soc-stages from" in line
