"""``soc-pipeline run`` with a model in place of a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

Run = Callable[..., Any]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(path))
    return path


@pytest.fixture
def frame(tmp_path: Path) -> Path:
    path = tmp_path / "frame.npy"
    np.save(path, np.random.default_rng(0).random((1, 4, 8, 8), np.float32))
    return path


def test_a_model_is_built_once_and_runs(command: Run, small_onnx: Path, frame: Path, cache: Path) -> None:
    first = command("run", small_onnx, "--input", frame, "--stages", 2)
    assert first.status == 0, first.err
    assert first.err.startswith(f"built small.onnx; its bundle is kept in {cache / 'models-1'}{os.sep}")
    second = command("run", small_onnx, "--input", frame, "--stages", 2, "--json")
    assert (second.status, second.err) == (0, "")
    assert '"stage1"' in second.out
    assert len([path for path in (cache / "models-1").iterdir() if path.is_dir()]) == 1


def test_a_plan_of_one_s_own(command: Run, small_onnx: Path, frame: Path, cache: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert command("plan", small_onnx, "--stages", 3, "-o", plan).status == 0
    result = command("run", small_onnx, "--input", frame, "--plan", plan, "--json")
    assert result.status == 0, result.err
    assert '"stage2"' in result.out
    result = command("run", small_onnx, "--input", frame, "--plan", plan, "--stages", 2)
    assert (result.status, result.out) == (2, "")
    assert "--plan already says where to cut and what runs where; leave out --stages" in result.err
