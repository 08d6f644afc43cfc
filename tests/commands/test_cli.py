"""Commands, one by one: what they print and write."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline import cli
from tests.support.onnx_models import IMAGE, node, save, weights


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_has_an_example_that_is_right(command: Any, name: str) -> None:
    result = command(name, "--help")
    assert (result.status, result.err) == (0, "")
    example = result.out.partition("example:\n")[2].strip()
    assert example.startswith(f"soc-pipeline {name} ")
    assert cli.parser().parse_args(shlex.split(example)[1:]).run


def test_help_lists_the_commands_and_version_says_which(command: Any) -> None:
    text = command("--help").out
    assert all(name in text for name in cli.COMMANDS)
    assert command("--version").out.startswith("soc-pipeline ")


def test_inspect(command: Any, digits_onnx: Path) -> None:
    result = command("inspect", digits_onnx)
    assert (result.status, result.err) == (0, "")
    for expected in ("digits: ", "MFLOP", "stem.pool", "float32[1, 32, 16, 16]", "legal cuts", "bytes per frame"):
        assert expected in result.out


def test_inspect_as_json(command: Any, digits_onnx: Path) -> None:
    result = command("inspect", digits_onnx, "--json")
    answer = json.loads(result.out)
    assert (result.status, result.err, answer["name"]) == (0, "", "digits")
    assert answer["cuts"][0].keys() == {"position", "after", "bytes", "crossing"}
    assert [each["position"] for each in answer["operators"]] == list(range(1, len(answer["operators"]) + 1))


def test_plan_and_its_file(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    result = command("plan", digits_onnx, "--cut", "stem.pool", "--cut", "widen1.pool", "-o", path)
    assert (result.status, result.err) == (0, "")
    for expected in ("digits on host", "stage2", "interval ms", "frames/s", f"Plan: {path}"):
        assert expected in result.out
    assert [len(stage.inputs) for stage in pipeline.Plan.load(path).stages] == [1, 1, 1]


def test_plan_as_json_is_the_file_and_its_explanation(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    result = command("plan", digits_onnx, "--stages", 2, "--queue-depth", 3, "--json", "-o", path)
    answer = json.loads(result.out)
    assert answer.pop("explanation")["stages"]
    assert (result.status, result.err, answer) == (0, "", json.loads(path.read_text()))
    assert [stage["queue_depth"] for stage in answer["stages"]] == [3, 3]


def test_plan_says_when_pipelining_will_not_help(command: Any, digits_onnx: Path) -> None:
    assert "nothing is pipelined" in command("plan", digits_onnx, "--stages", 1).out
    assert "Replicate instead" in command("plan", digits_onnx, "--cut", "head.flatten").out


def test_build_from_a_plan_and_build_again(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    plan, path = tmp_path / "plan.json", tmp_path / "small.bundle"
    command("plan", small_onnx, "--stages", 2, "-o", plan)
    for _ in range(2):
        result = command("build", small_onnx, "--plan", plan, "-o", path)
        assert (result.status, result.err) == (0, "")
        assert "2 stages against the unsplit model: largest error" in result.out
        assert f"Bundle: {path}" in result.out
    assert sorted(tmp_path.iterdir()) == [plan, path]
    assert pipeline.Bundle.load(path).plan == pipeline.Plan.load(plan)


def test_build_names_operators_without_a_kernel_of_their_own(command: Any, tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c", "first", pads=[1] * 4), node("CumSum", "c axis", "y", "sums")]
    model = save(tmp_path / "odd.onnx", nodes, IMAGE, ["y"], {"w": weights(4, 4, 3, 3), "axis": np.array(1)})
    result = command("build", model, "--cut", "first", "-o", tmp_path / "odd.bundle")
    assert (result.status, result.err) == (0, "")
    assert "stage1: 1 operator has no kernel of its own and takes 100% of its time: cumsum (sums)" in result.out
    assert "stage0: " not in result.out
    result = command("build", model, "--cut", "first", "-o", tmp_path / "odd.bundle", "--json")
    answer = json.loads(result.out)
    assert [(each["stage"], len(each["kernels"])) for each in answer["without_rule"]] == [("stage0", 0), ("stage1", 1)]
    assert answer["without_rule"][1]["kernels"][0]["operators"] == [{"name": "sums", "kind": "cumsum"}]
    assert answer["parity"]["tolerance"] == 1e-5


def test_run_gives_the_outputs_in_order(command: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    result = command("run", bundle, "--input", frames, "--output", path)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("6 frames, ")
    assert f"Outputs: {path}" in result.out
    with pipeline.load(bundle) as running, np.load(path) as archive:
        (name,) = archive.files
        assert name == running.plan.outputs[0].name
        np.testing.assert_array_equal(archive[name], np.stack(list(running.map(np.load(frames)))))
    assert list(tmp_path.iterdir()) == [path]


def test_run_into_a_folder_gives_a_file_for_each_frame(
    command: Any, bundle: Path, frames: Path, tmp_path: Path
) -> None:
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    for folder in (first, second):
        folder.mkdir()
        np.save(folder / "image.npy", np.load(frames)[0])
    result = command("run", bundle, "--input", first, second, frames, "--output", out)
    assert result.status == 0
    names = ["image", "image-2", *(f"digits-{number:06d}" for number in range(6))]
    assert sorted(each.name for each in out.iterdir()) == sorted(f"{name}.npz" for name in names)


def test_run_as_json_with_a_trace(command: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = command("run", bundle, "--input", frames, "--trace", path, "--json")
    assert (result.status, result.err) == (0, "")
    answer = json.loads(result.out)
    assert (answer["submitted"], answer["delivered"], answer["dropped"]) == (6, 6, {})
    assert [stage["frames_out"] for stage in answer["stages"]] == [6, 6]
    records = json.loads(path.read_text())["traceEvents"]
    assert sum(record["name"].startswith("run ") for record in records) == 12
    assert list(tmp_path.iterdir()) == [path]


def test_run_names_where_metrics_and_trace_are(command: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    result = command("run", bundle, "--input", frames, "--metrics", 0, "--trace", tmp_path / "trace.json")
    assert result.status == 0
    assert result.err.startswith("metrics: http://127.0.0.1:")
    assert f"Trace: {tmp_path / 'trace.json'}" in result.out


def test_bundles_may_be_moved(command: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "elsewhere")
    assert command("run", tmp_path / "elsewhere", "--input", frames).status == 0


def test_bench_of_a_model_as_json_with_a_trace(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = command("bench", small_onnx, "--stages", 2, "--frames", 3, "--rounds", 1, "--json", "--trace", path)
    assert (result.status, result.err) == (0, "")
    answer = json.loads(result.out)
    assert [variant["name"].partition(",")[0] for variant in answer["variants"]] == ["unsplit", "unsplit", "2 stages"]
    assert answer["bottleneck"] in {"stage0", "stage1"}
    records = json.loads(path.read_text())["traceEvents"]
    # One round of the pipeline, that was not counted.
    assert {record["args"]["frame"] for record in records if record["ph"] == "X"} == {0, 1, 2}


def test_bench_of_a_bundle(command: Any, bundle: Path) -> None:
    result = command("bench", bundle, "--frames", 3, "--rounds", 1)
    assert (result.status, result.err) == (0, "")
    for expected in ("digits", "2 stages", "latency p50 ms", "Bottleneck: stage", "Predicted"):
        assert expected in result.out
