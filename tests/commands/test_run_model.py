"""``soc-pipeline run`` with a model in place of a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.executor.bundle import Bundle

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


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "photo.png"
    image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64), np.uint8)).save(path)
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("".join(f"digit {number}\n" for number in range(10)))
    return path


def test_results_are_printed_unless_they_go_elsewhere(
    command: Run, digits_onnx: Path, photo: Path, labels: Path, tmp_path: Path
) -> None:
    line = ("run", digits_onnx, "--source", photo, "--labels", labels)
    result = command(*line)
    assert result.status == 0, result.err
    assert result.out.startswith("photo: digit ")
    assert "\n1 frame, " in result.out
    result = command(*line, "--decode", "classes:top=1")
    assert result.out.count("digit") == 1
    result = command(*line, "--sink", tmp_path / "out.npz")
    assert (result.err, result.out[:9]) == ("", "1 frame, ")
    assert '"delivered": 1' in command(*line, "--json").out


def test_bundles_of_earlier_versions_say_what_they_said(
    command: Run, bundle: Path, frames: Path, tmp_path: Path
) -> None:
    loaded = Bundle.load(bundle)
    loaded.card = None
    loaded.save(tmp_path / "earlier.bundle")
    result = command("run", tmp_path / "earlier.bundle", "--input", frames)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("6 frames, ")
    assert command("run", bundle, "--input", frames, "--decode", "none").out.startswith("6 frames, ")


def test_a_guess_is_explained_at_the_first_start(command: Run, tmp_path: Path, photo: Path, cache: Path) -> None:
    from tests.support import detectors

    path = detectors.save_detector(tmp_path / "cells.onnx")
    result = command("run", path, "--source", photo)
    assert "outputs stay as they are, since they fit several decoders; choose one: --decode " in result.err
    assert "--decode yolox (its output [1, 21, 6] has a row for each cell of strides 8, 16, 32 of 32x32)" in result.err
    (tmp_path / "cells.toml").write_text('task = "classify"\n')
    result = command("run", path, "--source", photo)
    assert result.err.startswith("built cells.onnx; ")
    assert cache.exists()


def test_outputs_without_a_decoder(command: Run, photo: Path, tmp_path: Path) -> None:
    from tests.support.onnx_models import node, save

    shape = {"shape": np.array([1, 2, 3, 4, 8])}
    path = save(tmp_path / "odd.onnx", [node("Reshape", "x shape", "y")], {"x": (1, 3, 8, 8)}, ["y"], shape)
    result = command("run", path, "--source", photo)
    assert result.status == 0, result.err
    remedy = "fit no decoder; save them as they are by --sink FILE.npz, or choose one by --decode: "
    assert f"outputs [1, 2, 3, 4, 8] {remedy}" in result.err
    assert command("run", path, "--source", photo, "--sink", tmp_path / "out.npz").err == ""
