"""An NPU beside the CPU, which takes convolutions only: asked, planned for, built for, and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import BuildError, PlanError
from pipeline.frontends.tflite.reference import open_interpreter
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.frontends.tflite.test_tflite import Writer, byte_convolutions, classifier, conv
from tests.support.fake_npu import build_delegate, npu
from tests.support.sampling import QUICK


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_delegate(tmp_path_factory.mktemp("npu"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("model") / "net.tflite")


@pytest.fixture(scope="module")
def graph(model: Path) -> Graph:
    return pipeline.read(model)


@pytest.fixture(scope="module")
def board(library: Path) -> Board:
    # The CPU is slow, so that whatever the NPU takes is worth its way there.
    cpu = Device("cpu", cores=(0,), flops=1e6, bytes_per_s=1e6)
    return Board("board", (cpu, npu(library)), (Link(("host", "npu"), 1e9, 1e-6),))


def by_litert(model: Path, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    interpreter = open_interpreter(model_path=str(model))
    results = []
    for frame in frames:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], frame)
        interpreter.invoke()
        results.append(np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])))
    return results


def streamed(graph: Graph, plan: Plan, folder: Path, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what a saved bundle computes."""
    pipeline.build(graph, plan).save(folder / "m.bundle")
    with pipeline.load(folder / "m.bundle") as running:
        return list(running.map(frames))


def test_what_it_refuses_is_left_to_the_cpu(graph: Graph, board: Board) -> None:
    planner = make_planner(graph, board)
    groups = {operator.name: operator.group for operator in graph.operators}
    # One group has a convolution, and operators that the NPU does not take.
    assert set(planner.refusals["npu"]) == {groups[name] for name in ("pw", "pool", "mean", "logits", "probabilities")}
    plan = planner.plan(stages=2)
    assert [(stage.device, stage.operators[-1]) for stage in plan.stages] == [("npu", "dw"), ("cpu", "probabilities")]
    (note,) = [line for line in explain(planner, plan).help if line.startswith("npu cannot run")]
    assert note.startswith("npu cannot run 5 of ")
    assert "groups, and leaves to other devices: " in note
    assert "1 operator: probabilities of kind SOFTMAX, operator 0 (the CPU) ('probabilities')" in note


def test_answers_are_kept_for_the_same_delegate(graph: Graph, board: Board, library: Path, tmp_path: Path) -> None:
    first = make_planner(graph, board).refusals
    assert make_planner(graph, board).refusals == first
    other = tmp_path / "libother.so"
    other.write_bytes(library.read_bytes())
    renamed = replace(board, devices=(board.devices[0], npu(other)))
    assert make_planner(graph, renamed).refusals == first


def test_a_stage_that_it_cannot_run_is_refused(graph: Graph, board: Board) -> None:
    with pytest.raises(PlanError, match=r"'npu' cannot run .*skip of kind ADD, operator 1 \(the CPU\)"):
        pipeline.plan(graph, board, cuts=["pool"], devices=["npu", "cpu"])
    with pytest.raises(PlanError, match=r"'probabilities' is pinned to 'npu'"):
        pipeline.plan(graph, board, pin={"probabilities": "npu"})
    plan = pipeline.plan(graph, board, cuts=["pool"], devices=["cpu", "cpu"])
    forced = replace(plan, stages=(replace(plan.stages[0], device="npu", cores=()), plan.stages[1]))
    with pytest.raises(
        BuildError, match=r"elsewhere than on 'npu': skip of kind ADD, operator 3 \(the CPU\), swish of kind HARD_SWISH"
    ):
        pipeline.build(graph, forced)


def test_it_computes_what_litert_does(graph: Graph, board: Board, model: Path, tmp_path: Path) -> None:
    plan = pipeline.plan(graph, board, stages=2)
    frames = [np.random.default_rng(seed).standard_normal((1, 16, 16, 3)).astype(np.float32) for seed in range(4)]
    for result, expected in zip(streamed(graph, plan, tmp_path, frames), by_litert(model, frames), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_between_two_stages_of_the_cpu(board: Board, tmp_path: Path) -> None:
    """Quantised, as most NPUs are."""
    path = byte_convolutions(tmp_path / "bytes.tflite")
    graph = pipeline.read(path)
    plan = pipeline.plan(graph, board, cuts=["q", "first"], devices=["cpu", "npu", "cpu"])
    frames = [np.random.default_rng(seed).standard_normal((1, 6, 6, 4)).astype(np.float32) for seed in range(4)]
    for result, expected in zip(streamed(graph, plan, tmp_path, frames), by_litert(path, frames), strict=True):
        # A step of the scale, where two roundings meet.
        np.testing.assert_allclose(result, expected, rtol=0, atol=0.0301)


def test_measured_are_the_spans_that_it_takes(graph: Graph, board: Board) -> None:
    planner = make_planner(graph, board, PlannerOptions(measure=True, sampling=QUICK))
    spans = planner.spans["npu"]
    runnable = [group not in planner.refusals["npu"] for group in range(spans.positions[-1])]
    for end, row in zip(spans.positions, spans.seconds, strict=True):
        for begin, seconds in zip(spans.positions, row, strict=True):
            assert np.isfinite(seconds) == (begin < end and all(runnable[begin:end]))
    assert {stage.device for stage in planner.plan(stages=2).stages} <= {"cpu", "npu"}


def test_spans_of_many_groups_end_at_what_it_refuses(board: Board, tmp_path: Path) -> None:
    """More groups than spans are measured between."""
    writer = Writer(1, 4, 4, 2)
    last = 0
    for block in "ab":
        last = writer.add("TANH", [last], writer.tensor(f"{block}/tanh", (1, 4, 4, 2)))
        for number in range(7):
            last = conv(writer, last, f"{block}/{number}", (1, 4, 4, 2), (2, 2))
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", last))
    planner = make_planner(graph, board, PlannerOptions(measure=True, sampling=QUICK))
    edges = {*planner.refusals["npu"], *(group + 1 for group in planner.refusals["npu"])}
    assert edges <= {*planner.spans["npu"].positions}
    assert len(planner.spans["npu"].positions) < len(graph.group_ends) + 1


def test_a_model_of_another_format_is_nothing_for_it(small_onnx: Path, board: Board) -> None:
    planner = make_planner(pipeline.read(small_onnx), board)
    assert set(planner.refusals["npu"].values()) == {
        "npu runs parts of TFLite models only, and this is an ONNX file; choose another runtime"
    }
    assert {stage.device for stage in planner.plan().stages} == {"cpu"}


def test_an_operator_of_several_groups_is_asked_for_as_one(library: Path, tmp_path: Path) -> None:
    """None of these groups is a part of the file by itself; LiteRT's own kernels run them all."""
    writer = Writer(1, 2, 8)
    halves = [writer.tensor(name, (1, 8)) for name in ("left", "right")]
    writer.add("UNPACK", [0], halves[0], options="UnpackOptions", num=2, axis=1)
    writer.graph.operators[0].outputs = halves
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", *halves))
    assert len(graph.group_ends) > 1
    assert make_planner(graph, Board("b", (Device("cpu", "litert", cores=(0,)),))).refusals == {"cpu": {}}
    npu_alone = Board("b", (replace(npu(library), memory="host"),))
    (reason,) = set(make_planner(graph, npu_alone).refusals["npu"].values())
    assert reason == "left, right of kind UNPACK, operator 0 (the CPU)"
