"""What was compiled once is not compiled again: by content, target and versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.executor import compile_cache, linker
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.support.onnx_models import frame, node, save, weights

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(not linker.is_there(""), reason="needs a linker")]

CONVOLUTIONS = 8

BUILD = """
import sys, pipeline
graph = pipeline.read(sys.argv[1])
pipeline.build(graph, pipeline.plan(graph, stages=1), check=False).save(sys.argv[2])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the cache, empty."""
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled-1"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Convolutions of growing width, each one a kernel of its own."""
    values = {f"w{index}": weights(4 * index + 8, 4 * index + 4, 1, 1, seed=index) for index in range(CONVOLUTIONS)}
    nodes = [node("Conv", f"x{index} w{index}", f"x{index + 1}", kernel_shape=[1, 1]) for index in range(CONVOLUTIONS)]
    shapes = {"x0": (1, 4, 12, 12)}
    return save(tmp_path / "model.onnx", nodes, shapes, [f"x{CONVOLUTIONS}"], values)


def build(graph: Graph, **options: object) -> tuple[Bundle, list[str]]:
    """Return a bundle in one stage, or with these cuts, and the steps of its build."""
    steps: list[str] = []
    plan = pipeline.plan(graph, **({"stages": 1} | options))  # type: ignore[arg-type]
    return pipeline.build(graph, plan, progress=steps.append, check=False), steps


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def run(bundle: Bundle, graph: Graph) -> np.ndarray:
    with pipeline.load(bundle) as running:
        return np.array(running.submit(frame(graph)).result())


def kernels(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith("kernel")}


def compiled(steps: list[str]) -> list[str]:
    return [step for step in steps if ": kernel " in step]


@pytest.mark.parametrize(("window", "stages"), [(1, 1), (3, 2)])
def test_the_unsplit_model_is_one_stage_s_code_unless_it_may_be_transformed(
    folder: Path, tmp_path: Path, window: int, stages: int
) -> None:
    """Winograd's transforms are for 3x3 windows, and what a stage is compared with does without."""
    values = {f"w{index}": weights(24 + 8 * index, 16 + 8 * index, window, window) for index in range(5)}
    nodes = [node("Conv", f"x{index} w{index}", f"x{index + 1}", kernel_shape=[window] * 2) for index in range(5)]
    path = save(tmp_path / "m.onnx", nodes, {"x0": (1, 16, 24, 24)}, ["x5"], values)
    graph = pipeline.read(path)
    pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert len(list(folder.glob("stage-*"))) == stages


def test_the_second_build_compiles_nothing_and_is_the_same(folder: Path, model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    first, _ = build(graph)
    first.save(tmp_path / "first.bundle")
    kept = {path: path.stat().st_ino for path in folder.iterdir()}
    second, steps = build(pipeline.read(model))
    second.save(tmp_path / "second.bundle")
    assert compiled(steps) == []
    assert {path: path.stat().st_ino for path in folder.iterdir()} == kept
    assert files(tmp_path / "first.bundle") == files(tmp_path / "second.bundle")


def test_progress_counts_the_kernels(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_COMPILE_CACHE", "0")
    _, steps = build(pipeline.read(model))
    assert compiled(steps)[-1].startswith("building stage0: kernel ")
    assert not folder.exists()


def test_another_cut_compiles_only_what_it_changes(folder: Path, model: Path) -> None:
    graph = pipeline.read(model)
    build(graph, cuts=["x4"], stages=2)
    before = kernels(folder)
    build(graph, cuts=["x5"], stages=2)
    # What a cut adds moves the crossing tensor to the model's layout and back.
    assert len(kernels(folder) - before) < len(before) / 2


def test_other_sources_of_the_compiler_are_another_key(tmp_path: Path) -> None:
    file = tmp_path / "executor" / "kernels" / "some.py"
    file.parent.mkdir(parents=True)
    file.write_text("one")
    first = compile_cache.sources_digest.__wrapped__(tmp_path)
    file.write_text("two")
    assert compile_cache.sources_digest.__wrapped__(tmp_path) != first


def test_other_targets_and_numbers_are_other_entries(folder: Path, model: Path) -> None:
    graph = pipeline.read(model)
    assert compile_cache.key_of("kernel", 1, "x86-64") != compile_cache.key_of("kernel", 1, "haswell")
    build(graph)
    before = {path.name for path in folder.iterdir()}
    changed = pipeline.read(model)
    build(changed, stages=2)
    assert {path.name for path in folder.iterdir()} > before


def test_damaged_entries_are_compiled_again(folder: Path, model: Path) -> None:
    graph = pipeline.read(model)
    first, _ = build(graph)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    second, _ = build(graph)
    np.testing.assert_array_equal(run(first, graph), run(second, graph))


def test_a_kept_stage_computes_the_same(folder: Path, model: Path) -> None:
    graph = pipeline.read(model)
    first, second = (run(build(graph)[0], graph) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_two_processes_at_once(
    folder: Path, model: Path, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    paths = [tmp_path / f"{number}.bundle" for number in range(2)]
    processes += [subprocess.Popen([sys.executable, "-c", BUILD, str(model), str(path)]) for path in paths]
    assert [process.wait() for process in processes] == [0, 0]
    assert files(paths[0]) == files(paths[1])
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
