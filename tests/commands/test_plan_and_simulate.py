"""The commands plan and simulate: what they print, draw, and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline


@pytest.fixture
def plan(command: Any, digits_onnx: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert command("plan", digits_onnx, "--stages", 2, "-o", path).status == 0
    return path


def test_plan_explains(command: Any, digits_onnx: Path) -> None:
    done = command("plan", digits_onnx, "--stages", 2)
    assert (done.status, done.err) == (0, "")
    for expected in (
        "The bottleneck is stage",
        "No plan takes less than",
        "gap",
        "Considered",
        "Queues: with stage times that vary by 10%",
        "replicas of the whole",
    ):
        assert expected in done.out


def test_plan_as_json_has_all_of_it(command: Any, digits_onnx: Path) -> None:
    found = json.loads(command("plan", digits_onnx, "--board", "rk3588", "--json").out)["explanation"]
    assert found["verdict"] == "replicas"
    assert found["stages"][0]["replicas"] == 8
    assert found["frames_per_s"] > 0
    assert found["bound_s"] <= found["interval_s"]
    assert {each["name"] for each in found["alternatives"]} >= {"stages", "unsplit, several cores"}


def test_plan_for_a_rate(command: Any, digits_onnx: Path) -> None:
    done = command("plan", digits_onnx, "--board", "rk3588", "--fps", 100)
    assert (done.status, done.err) == (0, "")
    done = command("plan", digits_onnx, "--board", "rk3588", "--fps", 10_000_000)
    assert done.status == 2
    assert "frames/s on 'rk3588', not 1e+07; ask for less" in done.err
    for wrong in ("0", "-1", "many", "inf"):
        assert f"--fps is '{wrong}'" in command("plan", digits_onnx, f"--fps={wrong}").err


def test_plan_chooses_queues_for_what_varies(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    steady, varying, given = (tmp_path / name for name in ("steady.json", "varying.json", "given.json"))
    command("plan", digits_onnx, "--stages", 2, "-o", steady)
    command("plan", digits_onnx, "--stages", 2, "--variance", 0.9, "-o", varying)
    command("plan", digits_onnx, "--stages", 2, "--queue-depth", 1, "-o", given)
    depths = [[stage.queue_depth for stage in pipeline.Plan.load(path).stages] for path in (steady, varying, given)]
    assert depths[0] == [2, 2]
    assert depths[1][1] > 2
    assert depths[2] == [1, 1]
    for options, said in (
        (["--queue-depth", "deep"], "--queue-depth is 'deep'"),
        (["--variance", "2"], "variance is 2"),
    ):
        done = command("plan", digits_onnx, *options)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert said in done.err


def test_plan_without_replicas(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    command("plan", digits_onnx, "--board", "rk3588", "--no-replicas", "-o", path)
    stages = pipeline.Plan.load(path).stages
    assert len(stages) > 1
    assert all(stage.replicas == 1 for stage in stages)


def test_simulate(command: Any, plan: Path) -> None:
    done = command("simulate", plan, "--frames", 50)
    assert (done.status, done.err) == (0, "")
    for expected in ("digits on host, simulated", "stage1", "50 frames, ", "from start to result: p50 "):
        assert expected in done.out
    assert done.out == command("simulate", plan, "--frames", 50).out


def test_simulate_as_json(command: Any, plan: Path) -> None:
    lines = [
        json.loads(command("simulate", plan, "--json", "--variance", 0.3, "--seed", seed, "--fps", 100).out)
        for seed in (1, 1, 2)
    ]
    assert lines[0] == lines[1] != lines[2]
    assert lines[0]["frames"] == 1000
    assert lines[0]["frames_per_s"] == pytest.approx(100, rel=0.01)
    assert lines[0]["stages"][0].keys() >= {"busy", "blocked", "queue_mean", "queue_longest", "wait_s"}


def test_simulate_with_frames_that_are_dropped(command: Any, plan: Path) -> None:
    done = command("simulate", plan, "--fps", 10_000_000, "--admission", "drop-oldest", "--waiting", 3)
    assert (done.status, done.err) == (0, "")
    assert "1000 frames, 9" in done.out
    assert "dropped as full" in done.out
    options = ("--admission", "deadline", "--deadline", 1e-9, "--fps", 100, "--json")
    found = json.loads(command("simulate", plan, *options).out)
    assert (found["frames"], found["delivered"], found["dropped"]) == (1000, 0, {"late": 1000})


def test_drawings(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = tmp_path / "plan.json"
    command("plan", small_onnx, "--stages", 2, "-o", plan)
    predicted, both, trace = tmp_path / "predicted.svg", tmp_path / "both.svg", tmp_path / "trace.json"
    assert f"Drawing: {predicted}" in command("plan", small_onnx, "--stages", 2, "--drawing", predicted).out
    assert "stage1" in predicted.read_text()
    bundle, frames = tmp_path / "small.bundle", tmp_path / "frames.npy"
    np.save(frames, np.zeros((40, 1, 4, 8, 8), np.float32))
    command("build", small_onnx, "--plan", plan, "-o", bundle)
    assert command("run", bundle, "--input", frames, "--trace", trace).status == 0
    done = command("simulate", plan, "--drawing", both, "--against", trace)
    assert (done.status, done.err) == (0, "")
    assert all(
        f"{stage} {side}" in both.read_text() for stage in ("stage0", "stage1") for side in ("predicted", "measured")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frames", "one"], "--frames is 'one'"),
        (["--frames", "1"], "frames is 1; a rate needs at least 2"),
        (["--fps", "0"], "--fps is '0'"),
        (["--variance", "-1"], "--variance is '-1'"),
        (["--seed", "1.5"], "--seed is '1.5'"),
        (["--drawing", "x.gif"], "the name must end in .png or .svg"),
        (["--drawing", "nowhere/x.svg"], "there is no folder 'nowhere'"),
        (["--against", "trace.json"], "say where with --drawing"),
        (["--admission", "latest"], "say with fps how many come per second"),
        (["--admission", "deadline", "--fps", "9"], "needs deadline=seconds"),
        (["--waiting", "0"], "--waiting is '0'"),
    ],
    ids=str,
)
def test_wrong_options_of_simulate(command: Any, plan: Path, arguments: list[str], message: str) -> None:
    done = command("simulate", plan, *arguments)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the trace"),
        ("{", "not a trace of 'soc-pipeline run --trace'"),
        ('{"traceEvents": []}', "no stage of the plan ran in this trace; the plan has stage0, stage1"),
    ],
)
def test_wrong_traces(command: Any, plan: Path, tmp_path: Path, content: str | None, message: str) -> None:
    trace = tmp_path / "trace.json"
    if content is not None:
        trace.write_text(content)
    done = command("simulate", plan, "--drawing", tmp_path / "x.svg", "--against", trace)
    assert done.status == 2
    assert message in done.err
    assert not (tmp_path / "x.svg").exists()


def test_simulate_needs_a_plan(command: Any, tmp_path: Path) -> None:
    done = command("simulate", tmp_path / "none.json")
    assert done.status == 2
    assert "make one with 'soc-pipeline plan'" in done.err
