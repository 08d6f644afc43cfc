"""soc-run: arrays through a bundle from the shell, and the runner's size, speed and memory."""

from __future__ import annotations

import json
import platform
import runpy
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import pipeline
from tests.runner.test_arm import assert_old_libraries_will_do
from tests.support.onnx_models import node, save
from tests.support.runner import ROOT


def soc_run(
    built: Path, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(built / "soc-run"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment)


def test_arrays_go_through_a_bundle(built: Path, digits: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(3).standard_normal((6, 1, 1, 32, 32), np.float32)
    np.save(tmp_path / "images.npy", images)
    result = soc_run(built, digits, "--input", tmp_path / "images.npy", "--output", tmp_path / "logits.npy")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    with pipeline.load(digits) as running:
        np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), np.stack(list(running.map(images))))


def test_the_version_names_the_processors(built: Path) -> None:
    result = soc_run(built, "--version")
    assert (result.returncode, result.stderr) == (0, "")
    cores = runpy.run_path(str(ROOT / "runner/make.py"))["CORES"]
    assert result.stdout == f"soc-run with TVM {version('apache-tvm')}, for {cores[platform.machine()]}\n"
    assert "not ARMv6 (Raspberry Pi Zero" in cores["armv7l"]


def test_tvms_libraries_run_on_old_systems(built: Path) -> None:
    """JetPack 4 has libraries of 2018."""
    assert_old_libraries_will_do(*built.glob("libtvm_*.so"))


def test_one_frame_has_no_axis_more(built: Path, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.zeros((1, 1, 32, 32), np.float32))
    result = soc_run(built, digits, "--input", tmp_path / "image.npy", "--output", tmp_path / "logits.npy")
    assert result.returncode == 0
    assert np.load(tmp_path / "logits.npy").shape == (1, 10)


def test_a_stage_that_sorts_runs(built: Path, tmp_path: Path) -> None:
    """TVM has its sorts in a library of their own, which was not there."""
    model = save(tmp_path / "m.onnx", [node("TopK", "x k", "y i")], {"x": (4, 40)}, ["y"], {"k": np.array([5])})
    graph = pipeline.read(model)
    pipeline.build(graph, pipeline.plan(graph, stages=1)).save(tmp_path / "m.bundle")
    x = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    result = soc_run(built, tmp_path / "m.bundle", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), -np.sort(-x)[:, :5])


def test_a_benchmark_is_a_line_of_json(built: Path, digits: Path) -> None:
    result = soc_run(built, digits, "--bench", "100")
    assert result.returncode == 0
    values = json.loads(result.stdout)
    assert (values["submitted"], values["delivered"], values["failed"]) == (100, 100, 0)
    assert values["first_result_ms"] > 0
    assert 0 < values["peak_mb"] < 22, "20 MB and the parameters of a megabyte"


def test_it_takes_at_most_eight_megabytes(built: Path) -> None:
    names = {path.name for path in built.iterdir()}
    assert names == {"soc-run", "libsoc_pipeline.so", "libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"}
    # Zig's C++ library is in both programs.
    most = 8e6 if shutil.which("c++") else 8.5e6
    assert sum(path.stat().st_size for path in built.iterdir()) <= most


WRONG_USE = {
    "no bundle": ((), "which bundle?"),
    "two bundles": (("a", "b"), "there is no option 'b'"),
    "an unknown option": (("a", "--loud"), "there is no option '--loud'"),
    "no value": (("a", "--bench"), "--bench needs a value"),
    "no number": (("a", "--bench", "x"), "--bench is 'x'; it must be from 1 to 100000000"),
}


@pytest.mark.parametrize("name", WRONG_USE)
def test_wrong_use_is_told(built: Path, name: str) -> None:
    arguments, words = WRONG_USE[name]
    result = soc_run(built, *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((1, 1, 32, 31), np.float32), "another shape or dtype than float32[1, 1, 32, 32]"),
        (np.zeros((1, 1, 32, 32), np.int8), "is int8 of another shape or dtype"),
        (np.zeros((1, 1, 32, 32), np.complex64), "has a dtype that this runner does not know"),
        (np.asfortranarray(np.zeros((2, 1, 1, 32, 32), np.float32)), "Fortran's order"),
        (np.zeros((0, 1, 1, 32, 32), np.float32), "of another shape or dtype"),
    ],
)
def test_a_wrong_array_is_told(built: Path, digits: Path, tmp_path: Path, array: np.ndarray, words: str) -> None:
    np.save(tmp_path / "wrong.npy", array)
    result = soc_run(built, digits, "--input", tmp_path / "wrong.npy")
    assert result.returncode == 1
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_no_array_is_told(built: Path, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.zeros((1, 1, 32, 32), np.float32))
    data = (tmp_path / "whole.npy").read_bytes()
    for length in (0, 5, 11, 40, 128, len(data) - 1):
        (tmp_path / "part.npy").write_bytes(data[:length])
        result = soc_run(built, digits, "--input", tmp_path / "part.npy")
        assert result.returncode == 1, length
        assert "part.npy" in result.stderr
