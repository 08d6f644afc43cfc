"""A board that only runs bundles shows their cards, and takes others by hand."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline
from tests.support import cards

START = "import sys; from pipeline.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def runtime(root: Path, tmp_path: Path) -> Path:
    """Folder of the modules that the runtime's distribution has."""
    pytest.importorskip("setuptools")
    is_runtime = runpy.run_path(str(root / "distributions" / "parts.py"))["is_runtime"]
    folder = tmp_path / "runtime"
    for package in ("pipeline", "boards"):
        for path in (root / package).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and "__pycache__" not in name and (path.suffix != ".py" or is_runtime(name)):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    return folder


def test_inspect_and_cards_work_without_the_frontends(runtime: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    model = cards.onnx_model(tmp_path / "m.onnx", {"names": "['cat', 'dog']", "stride": "1", "task": "classify"})
    bundle = tmp_path / "m.bundle"
    pipeline.build(pipeline.read(model), check=False, verify=False).save(bundle)
    (tmp_path / "card.toml").write_text("labels = ['one', 'two']\ndecoder = 'classes'", encoding="utf-8")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", START, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(runtime)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    process = call("inspect", str(bundle), "--json")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["card"]["labels"] == ["cat", "dog"]
    process = call("inspect", str(bundle), "--json", "--card", "card.toml", "--mean", "0.5")
    assert process.returncode == 0, process.stderr
    card = json.loads(process.stdout)["card"]
    assert (card["labels"], card["decoder"], card["preparation"]["mean"]) == (["one", "two"], "classes", [0.5])
    process = call("inspect", str(model))
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "is a model, and" in process.stderr
