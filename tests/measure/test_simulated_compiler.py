"""A simulated compiler refuses, counts cycles, and hands an operator to the CPU; none of that stays unsaid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="the reader of TFLite files is not installed")
pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
from tflite_writer import TfliteWriter

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.errors import BuildError, PlanError
from pipeline.split.graph import Graph
from pipeline.workflow.plan import make_planner
from tests.support.stand_in_compiler import install_compiler

NPU = {"target": "NPU", "cycles": 1000}
SHAPE = (1, 8, 8, 4)


class NamedWriter(TfliteWriter):
    """Writer of an int8 network of three operators, or of what is made of it."""

    def tensors(self, *names: str) -> list[int]:
        """Add int8 tensors with names."""
        numbers = [self.tensor(SHAPE, "int8", 0.05, 0) for name in names]
        for number, name in zip(numbers, names, strict=True):
            self.graph.tensors[number].name = name
        return numbers

    def convolve(self, x: int, y: int) -> None:
        """Add a convolution."""
        w = self.constant(np.ones((4, 3, 3, 4), np.int8), np.full(4, 0.01), np.zeros(4, np.int64))
        b = self.constant(np.zeros(4, np.int32), np.full(4, 0.0005), np.zeros(4, np.int64))
        self.add("CONV_2D", [x, w, b], [y], 3, options="Conv2DOptions", strideH=1, strideW=1)

    def pool(self, x: int, y: int) -> None:
        """Add a pooling."""
        sizes = {"filterHeight": 3, "filterWidth": 3, "strideH": 1, "strideW": 1}
        self.add("MAX_POOL_2D", [x], [y], 2, options="Pool2DOptions", **sizes)

    def compile(self, x: int, y: int) -> None:
        """Add what a compiler makes for an NPU."""
        self.add("CUSTOM", [x], [y])
        self.model.operatorCodes[-1].customCode = "npu-code"


def network(folder: Path) -> Graph:
    writer = NamedWriter()
    x, first, pool, last = writer.tensors("x", "first", "pool", "last")
    writer.graph.inputs = [x]
    writer.convolve(x, first)
    writer.pool(first, pool)
    writer.convolve(pool, last)
    return pipeline.read(writer.save(folder / "m.tflite", last))


def artifact(folder: Path, *, has_pool: bool) -> Path:
    """Return what the compiler makes of the network, with an operator left as it was, or not."""
    writer = NamedWriter()
    x, first, pool, last = writer.tensors("x", "first", "pool", "last")
    writer.graph.inputs = [x]
    if has_pool:
        writer.compile(x, first)
        writer.pool(first, pool)
        writer.compile(pool, last)
    else:
        writer.compile(x, last)
    return writer.save(folder / f"artifact-{has_pool}.tflite", last)


def board(**target: Any) -> Board:
    quotes = {"compiler": "vela", "chip": "a-chip", "clock_hz": 1e9}
    npu = Device(
        "npu", "litert", memory="npu", launch_s=1e-6, flops=1e9, bytes_per_s=1e9,
        target={"kind": "litert", "delegate": "libnpu_of_nobody.so", "quotes": quotes, **target},
    )  # fmt: skip
    return Board("b", (Device("cpu", cores=(0,), flops=1e6), npu), (Link(("host", "npu"), 1e9, 1e-6),))


def test_its_cycles_are_the_time_and_the_plan_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_compiler("vela", {"first": NPU, "pool": NPU, "last": NPU}, tmp_path, monkeypatch)
    planner = make_planner(network(tmp_path), board())
    assert sum(planner.seconds(planner.board.device("npu"))) == pytest.approx(3 * 1000 / 1e9)
    (stage,) = planner.plan().stages
    assert stage.device == "npu"
    assert stage.cause.startswith("compiled fastest: ")


def test_what_it_refuses_goes_elsewhere_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_compiler("vela", {"first": NPU, "pool": "no such table", "last": NPU}, tmp_path, monkeypatch)
    graph = network(tmp_path)
    plan = pipeline.plan(graph, board())
    assert [stage.device for stage in plan.stages][:2] == ["npu", "cpu"]
    with pytest.raises(PlanError, match="no such table"):
        pipeline.plan(graph, board(), devices=["npu"])


def test_an_operator_that_it_hands_to_the_cpu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_compiler("vela", {"first": NPU, "pool": {"target": "CPU", "cycles": 0}, "last": NPU}, tmp_path, monkeypatch)
    graph = network(tmp_path)
    plan = pipeline.plan(graph, board())
    assert [stage.device for stage in plan.stages][:2] == ["npu", "cpu"]
    with pytest.raises(PlanError, match="its compiler leaves it to the CPU"):
        pipeline.plan(graph, board(), devices=["npu"])


def test_an_operator_that_it_takes_and_hands_to_the_cpu_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_compiler("vela", {"first": NPU, "pool": NPU, "last": NPU}, tmp_path, monkeypatch)
    graph = network(tmp_path)
    command = f"cp {artifact(tmp_path, has_pool=True)} {{artifact}}"
    silent = board(compile=command, artifact="{stage}_npu.tflite")
    plan = pipeline.plan(graph, silent)
    assert [stage.device for stage in plan.stages] == ["npu"]
    with pytest.raises(BuildError, match=r"elsewhere than on 'npu': pool of kind MAX_POOL_2D \(the CPU\)"):
        pipeline.build(graph, plan)
    for honest in (
        board(compile=command, artifact="{stage}_npu.tflite", allow_fallback=True),
        board(compile=f"cp {artifact(tmp_path, has_pool=False)} {{artifact}}", artifact="{stage}_npu.tflite"),
    ):
        pipeline.build(graph, replace(plan, board=honest))
