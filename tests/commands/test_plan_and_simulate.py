"""The commands plan and simulate: what they print, draw, and refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boards
import pipeline
from pipeline.core.board.board import Accuracy
from tests.support.onnx_models import node, save


@pytest.fixture
def plan(command: Any, digits_onnx: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert command("plan", digits_onnx, "--stages", 2, "-o", path).status == 0
    return path


def test_plan_explains(command: Any, digits_onnx: Path) -> None:
    result = command("plan", digits_onnx, "--stages", 2)
    assert (result.status, result.err) == (0, "")
    for expected in (
        "The bottleneck is stage",
        "no plan takes less than",
        "gap",
        "Considered",
        "Rate and latency: fastest",
        "Queues: with stage times that vary by 10%",
        "replicas of the whole",
    ):
        assert expected in result.out


def test_plan_as_json_has_all_of_it(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    # As fast as when this was written: a board's figures are estimates that change.
    board = tmp_path / "pi.toml"
    board.write_text(re.sub(r"(?m)^flops = .*", "flops = 2.5e10", boards.board_path("raspberry-pi-5").read_text()))
    answer = json.loads(command("plan", digits_onnx, "--board", board, "--json").out)["explanation"]
    # A split of little latency is slower than replicas of the whole.
    assert answer["verdict"] == "replicas"
    assert "The best division into 4 stages gives" in answer["reason"]
    assert [way["name"] for way in answer["trade_offs"]] == ["fastest", "knee", "least latency"]
    assert answer["frames_per_s"] > 0
    assert answer["bound_s"] <= answer["interval_s"]
    assert {each["name"] for each in answer["alternatives"]} >= {"stages", "unsplit, several cores"}


def test_a_rate_has_the_range_of_published_figures(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    text = boards.board_path("raspberry-pi-4").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("accuracy"))
    board, plan = tmp_path / "pi.toml", tmp_path / "plan.json"
    board.write_text(f"{text}\naccuracy = {{ figures = 11, low = 0.5, high = 1.25 }}\n")
    result = command("plan", digits_onnx, "--board", board, "-o", plan)
    assert (result.status, result.err) == (0, "")
    printed = re.search(r"Predicted \(estimated\): (\S+) frames/s, (\S+) to (\S+) by 11 published figures", result.out)
    assert printed
    rate, low, high = map(float, printed.groups())
    assert (low / rate, high / rate) == pytest.approx((0.5, 1.25), rel=0.01)
    assert f"{printed[1]} frames/s, {printed[2]} to {printed[3]} by 11" in command("simulate", plan).out
    expected = {"low": pytest.approx(low, rel=0.01), "high": pytest.approx(high, rel=0.01), "figures": 11}
    assert json.loads(command("simulate", plan, "--json").out)["rate_range"] == expected
    answer = json.loads(command("plan", digits_onnx, "--board", board, "--json").out)
    assert answer["explanation"]["rate_range"] == expected


def test_a_bundle_has_the_range_of_published_figures(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    host = boards.get("host")
    accuracy = Accuracy(11, 0.5, 1.25)
    board = replace(host, devices=tuple(replace(device, accuracy=accuracy) for device in host.devices))
    graph, bundle = pipeline.read(digits_onnx), tmp_path / "digits.bundle"
    pipeline.build(graph, pipeline.plan(graph, board=board, stages=1), check=False).save(bundle)
    expected = r"Predicted for host: \S+ frames/s, \S+ to \S+ by 11 published figures"
    assert re.search(expected, command("inspect", bundle).out)
    assert json.loads(command("inspect", bundle, "--json").out)["rate_range"]["figures"] == 11


def test_a_rate_without_published_figures_stands_alone(command: Any, digits_onnx: Path) -> None:
    assert "published" not in command("plan", digits_onnx, "--stages", 2).out


def test_plan_for_a_rate(command: Any, digits_onnx: Path) -> None:
    result = command("plan", digits_onnx, "--board", "rk3588", "--fps", 100)
    assert (result.status, result.err) == (0, "")
    result = command("plan", digits_onnx, "--board", "rk3588", "--fps", 10_000_000)
    assert result.status == 2
    assert "frames/s on 'rk3588', not 1e+07; ask for less" in result.err
    for mistake in ("0", "-1", "many", "inf"):
        assert f"--fps is '{mistake}'" in command("plan", digits_onnx, f"--fps={mistake}").err


def test_plan_chooses_queues_for_what_varies(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    steady, varying, values = (tmp_path / name for name in ("steady.json", "varying.json", "given.json"))
    command("plan", digits_onnx, "--stages", 2, "-o", steady)
    command("plan", digits_onnx, "--stages", 2, "--time-variation", 0.9, "-o", varying)
    command("plan", digits_onnx, "--stages", 2, "--queue-depth", 1, "-o", values)
    depths = [[stage.queue_depth for stage in pipeline.Plan.load(path).stages] for path in (steady, varying, values)]
    assert depths[0] == [2, 2]
    assert depths[1][1] > 2
    assert depths[2] == [1, 1]
    for options, words in (
        (["--queue-depth", "deep"], "--queue-depth is 'deep'"),
        (["--time-variation", "2"], "cv is 2.0; the coefficient of variation"),
    ):
        result = command("plan", digits_onnx, *options)
        assert (result.status, result.err.count("\n")) == (2, 1)
        assert words in result.err


def test_plan_without_replicas(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    command("plan", digits_onnx, "--board", "rk3588", "--no-replicas", "--objective", "throughput", "-o", path)
    stages = pipeline.Plan.load(path).stages
    assert len(stages) > 1
    assert all(stage.replicas == 1 for stage in stages)


def test_simulate(command: Any, plan: Path) -> None:
    result = command("simulate", plan, "--frames", 50)
    assert (result.status, result.err) == (0, "")
    for expected in ("digits on host, simulated", "stage1", "50 frames, ", "from start to result: p50 "):
        assert expected in result.out
    assert result.out == command("simulate", plan, "--frames", 50).out


def test_simulate_advises_against_stages_shorter_than_a_hop(command: Any, plan: Path, tmp_path: Path) -> None:
    stages = pipeline.Plan.load(plan).stages
    for seconds, is_short in ((1e-5, True), (1e-3, False)):
        path = tmp_path / f"{is_short}.json"
        replace(pipeline.Plan.load(plan), stages=tuple(replace(stage, seconds=seconds) for stage in stages)).save(path)
        out = command("simulate", path, "--frames", 50).out
        assert ("Stages are shorter than a hop of 50 us; one stage is faster." in out) == is_short


def test_too_little_memory_is_one_line(command: Any, plan: Path) -> None:
    result = command("simulate", plan, "--frames", 10**13)
    assert result.status == 1
    assert re.fullmatch("soc-pipeline: there is not enough memory; Unable to allocate .*\n", result.err)


def test_simulate_as_json(command: Any, plan: Path) -> None:
    lines = [
        json.loads(command("simulate", plan, "--json", "--time-variation", 0.3, "--seed", seed, "--fps", 100).out)
        for seed in (1, 1, 2)
    ]
    assert lines[0] == lines[1] != lines[2]
    assert lines[0]["frames"] == 1000
    assert lines[0]["frames_per_s"] == pytest.approx(100, rel=0.01)
    assert lines[0]["stages"][0].keys() >= {"busy", "blocked", "queue_mean", "queue_longest", "wait_s"}


def test_simulate_with_arrivals_at_random_and_as_recorded(command: Any, plan: Path, tmp_path: Path) -> None:
    even, random = (
        json.loads(command("simulate", plan, "--json", "--fps", 100, "--arrivals", how).out)
        for how in ("even", "poisson")
    )
    assert random["frames"] == even["frames"] == 1000
    assert random["seconds"] != even["seconds"]
    recording = tmp_path / "arrivals.csv"
    recording.write_text("seconds\n" + "".join(f"{number * 0.5}\n" for number in range(9)), encoding="utf-8")
    answer = json.loads(command("simulate", plan, "--json", "--arrivals", recording).out)
    assert (answer["frames"], round(answer["frames_per_s"], 6)) == (9, 2.0)


def test_simulate_with_frames_that_are_dropped(command: Any, plan: Path) -> None:
    result = command("simulate", plan, "--fps", 10_000_000, "--admission", "drop-oldest", "--waiting", 3)
    assert (result.status, result.err) == (0, "")
    assert "1000 frames, 9" in result.out
    assert "dropped as full" in result.out
    options = ("--admission", "deadline", "--deadline", 1e-9, "--fps", 100, "--json")
    answer = json.loads(command("simulate", plan, *options).out)
    assert (answer["frames"], answer["delivered"], answer["dropped"]) == (1000, 0, {"late": 1000})


def test_drawings(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = tmp_path / "plan.json"
    command("plan", small_onnx, "--stages", 2, "-o", plan)
    predicted, pair, trace = tmp_path / "predicted.svg", tmp_path / "both.svg", tmp_path / "trace.json"
    assert f"Drawing: {predicted}" in command("plan", small_onnx, "--stages", 2, "--drawing", predicted).out
    assert "stage1" in predicted.read_text()
    bundle, frames = tmp_path / "small.bundle", tmp_path / "frames.npy"
    np.save(frames, np.zeros((40, 1, 4, 8, 8), np.float32))
    command("build", small_onnx, "--plan", plan, "-o", bundle)
    assert command("run", bundle, "--input", frames, "--trace", trace).status == 0
    result = command("simulate", plan, "--drawing", pair, "--against", trace)
    assert (result.status, result.err) == (0, "")
    assert all(
        f"{stage} {side}" in pair.read_text() for stage in ("stage0", "stage1") for side in ("predicted", "measured")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frames", "one"], "--frames is 'one'"),
        (["--frames", "1"], "frames is 1; a rate needs at least 2"),
        (["--fps", "0"], "--fps is '0'"),
        (["--time-variation", "-1"], "--time-variation is '-1'"),
        (["--seed", "1.5"], "--seed is '1.5'"),
        (["--drawing", "x.gif"], "the name must end in .png or .svg"),
        (["--drawing", "nowhere/x.svg"], "there is no folder 'nowhere'"),
        (["--against", "trace.json"], "say where with --drawing"),
        (["--admission", "latest"], "say with fps how many come per second"),
        (["--admission", "deadline", "--fps", "9"], "needs deadline=seconds"),
        (["--arrivals", "poisson"], "needs a rate; say with fps"),
        (["--arrivals", "nowhere.csv"], "cannot read the arrivals 'nowhere.csv'"),
        (["--waiting", "0"], "--waiting is '0'"),
    ],
    ids=str,
)
def test_wrong_options_of_simulate(command: Any, plan: Path, arguments: list[str], message: str) -> None:
    result = command("simulate", plan, *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1


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
    result = command("simulate", plan, "--drawing", tmp_path / "x.svg", "--against", trace)
    assert result.status == 2
    assert message in result.err
    assert not (tmp_path / "x.svg").exists()


def test_simulate_needs_a_plan(command: Any, tmp_path: Path) -> None:
    result = command("simulate", tmp_path / "none.json")
    assert result.status == 2
    assert "make one with 'soc-pipeline plan'" in result.err


def test_a_cut_inside_of_a_fused_group_says_what_it_costs(command: Any, tmp_path: Path) -> None:
    model = tmp_path / "m.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(8,), float32]) { %0 = exp(%x); sqrt(%0) }')
    refused = command("plan", model, "--cut", "%0")
    assert refused.status == 2
    assert "--allow-unfused" in refused.err
    result = command("plan", model, "--cut", "%0", "--allow-unfused")
    assert (result.status, result.err) == (0, "")
    cost = "The cut behind '%0' divides a fused group of 2 operators: 1 kernel more per frame, and 64 bytes more"
    assert cost in " ".join(result.out.split())
    answer = json.loads(command("plan", model, "--cut", "%0", "--allow-unfused", "--json").out)["explanation"]
    assert answer["unfused"] == [{"cuts": ["%0"], "operators": 2, "kernels": 1, "nbytes": 64}]
    bundle = command("build", model, "--cut", "%0", "--allow-unfused", "-o", tmp_path / "m.bundle")
    assert bundle.status == 0
    assert cost in bundle.err
    assert len(pipeline.Bundle.load(tmp_path / "m.bundle").plan.stages) == 2


def test_names_with_brackets_are_no_markup(command: Any, tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "[bold]a"), node("Softmax", "[bold]a", "[/b]")]
    model = save(tmp_path / "m.onnx", nodes, {"x": (8, 8)}, ["[/b]"])
    result = command("plan", model, "--cut", "[bold]a")
    assert (result.status, result.err) == (0, "")
    assert "[bold]a" in result.out


def test_allowing_cuts_needs_cuts(command: Any, digits_onnx: Path) -> None:
    result = command("plan", digits_onnx, "--allow-unfused")
    assert (result.status, result.err) == (
        2,
        "soc-pipeline: --allow-unfused allows cuts inside of fused groups, but there are none; give --cut NAME\n",
    )


def test_pins_of_the_command_line(command: Any, tmp_path: Path) -> None:
    model = tmp_path / "m.relay"
    model.write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(8, 8), float32]) { %0 = nn.softmax(%x); nn.softmax(%0) }'
    )
    result = command("plan", model, "--board", "jetson-orin-nano", "--pin", "%0=gpu", "--pin", "output=cpu")
    assert (result.status, result.err) == (0, "")
    assert "stage0 (%0) on gpu: '%0' is pinned to 'gpu'." in result.out
    assert "on cpu: 'output' is pinned to 'cpu'." in result.out
    result = command("plan", model, "--pin", "%0")
    assert (result.status, "--pin is '%0'; it must be like 'conv1=cpu'" in result.err) == (2, True)
    result = command("plan", model, "--pin", "%0=gpu")
    assert (result.status, "'%0' is pinned to 'gpu', but board 'host' has no such device" in result.err) == (2, True)


def test_a_range_of_sizes_on_the_command_line(command: Any, tmp_path: Path) -> None:
    model = tmp_path / "m.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(?, 8), float32]) { sqrt(%x) }')
    shape = "--shape=x=N,8"
    result = command("build", model, shape, "--size=N=4", "--size=N=2..5", "-o", tmp_path / "m.bundle", "--json")
    assert (result.status, result.err) == (0, "")
    assert json.loads(result.out)["inputs"] == [{"x": [rows, 8]} for rows in (4, 2, 3, 5)]
    for mistake, message in (
        ("N=3..2", "the range N=3..2 is empty"),
        ("N=0..2", "--size is 'N=0..2'; it must be NAME=EXTENT"),
    ):
        result = command("inspect", model, shape, f"--size={mistake}")
        assert (result.status, message in result.err) == (2, True), result.err
