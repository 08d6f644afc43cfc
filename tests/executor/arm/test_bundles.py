"""Bundles that are built here for Arm, and run there as a user runs them: by the command, with the runtime only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import models
import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Cluster, Device
from pipeline.frontends import references
from tests.executor.arm.conftest import SLOW, ArmPython, board, target

pytestmark = list(SLOW)


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
@pytest.mark.parametrize("model", ["digits", "squeezenet"])
def test_a_bundle_gives_the_same_there(
    arm: ArmPython, digits_onnx: Path, tmp_path: Path, processor: str, model: str
) -> None:
    file = digits_onnx if model == "digits" else models.write(model, tmp_path)
    graph = pipeline.read(file)
    frames = np.random.default_rng(0).standard_normal((4, *graph.inputs[0].shape)).astype(np.float32)
    np.save(tmp_path / "frames.npy", frames)
    pipeline.build(graph, pipeline.plan(graph, board(processor), stages=2)).save(tmp_path / "arm.bundle")
    paths = [tmp_path / name for name in ("arm.bundle", "frames.npy", "results.npz")]
    options = (paths[0], "--input", paths[1], "--output", paths[2], "--json")
    process = arm.run(processor, "-m", "pipeline.cli", "run", *options)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["delivered"] == len(frames)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        expected = np.stack(list(running.map(frames)))
    with np.load(paths[2]) as results:
        (results_there,) = results.values()
    np.testing.assert_allclose(results_there, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("devices", [("cpu", "cpu/onnxruntime"), ("cpu/onnxruntime", "cpu")])
def test_stages_of_two_runtimes_give_the_same_there(
    arm: ArmPython, digits_onnx: Path, tmp_path: Path, devices: tuple[str, str]
) -> None:
    if arm.run("cortex-a72", "-c", "import onnxruntime").returncode:
        pytest.skip("the board has no ONNX Runtime")
    graph = pipeline.read(digits_onnx)
    frames = np.random.default_rng(0).standard_normal((4, *graph.inputs[0].shape)).astype(np.float32)
    np.save(tmp_path / "frames.npy", frames)
    plan = pipeline.plan(graph, board("cortex-a72").with_runtimes(["tvm", "onnxruntime"]), devices=devices)
    pipeline.build(graph, plan).save(tmp_path / "arm.bundle")
    options = (tmp_path / "arm.bundle", "--input", tmp_path / "frames.npy", "--output", tmp_path / "results.npz")
    process = arm.run("cortex-a72", "-m", "pipeline.cli", "run", *options)
    assert process.returncode == 0, process.stderr
    expected = np.stack([references.run(digits_onnx, {graph.inputs[0].name: frame})[1][0] for frame in frames])
    with np.load(tmp_path / "results.npz") as results:
        (results_there,) = results.values()
    np.testing.assert_allclose(results_there, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_replicas_on_unlike_cores_give_the_same_there(arm: ArmPython, tmp_path: Path) -> None:
    """Which code a worker takes follows from the plan's board, as the emulator names no core."""
    graph = pipeline.read(models.write("squeezenet", tmp_path))
    clusters = (Cluster("big", (0,)), Cluster("little", (1,), 0.5, {"mcpu": "cortex-a55"}))
    cpu = Device("cpu", clusters=clusters, target=target("cortex-a76"))
    plan = pipeline.plan(graph, Board("unlike", (cpu,)), stages=1)
    plan = replace(plan, stages=(replace(plan.stages[0], cores=(0, 1), replicas=2, replica_seconds=(1.0, 2.0)),))
    pipeline.build(graph, plan, check=False).save(tmp_path / "arm.bundle")
    assert (tmp_path / "arm.bundle" / "stage0.core1.so").exists()
    frames = np.random.default_rng(0).standard_normal((6, *graph.inputs[0].shape)).astype(np.float32)
    np.save(tmp_path / "frames.npy", frames)
    options = (tmp_path / "arm.bundle", "--input", tmp_path / "frames.npy", "--output", tmp_path / "results.npz")
    process = arm.run("cortex-a76", "-m", "pipeline.cli", "run", *options)
    assert process.returncode == 0, process.stderr
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        expected = np.stack(list(running.map(frames)))
    with np.load(tmp_path / "results.npz") as results:
        (results_there,) = results.values()
    np.testing.assert_allclose(results_there, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_bundle_for_this_machine_is_refused_there(arm: ArmPython, digits_onnx: Path, tmp_path: Path) -> None:
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False).save(tmp_path / "own.bundle")
    np.save(tmp_path / "frame.npy", np.zeros(graph.inputs[0].shape, np.float32))
    options = (tmp_path / "own.bundle", "--input", tmp_path / "frame.npy")
    process = arm.run("cortex-a53", "-m", "pipeline.cli", "run", *options)
    assert process.returncode == 2
    assert "but this machine is aarch64; build it with this machine's board" in process.stderr
