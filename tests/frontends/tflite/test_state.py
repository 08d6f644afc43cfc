"""State is kept from frame to frame as in LiteRT's interpreter; variables are values for each stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Board, Device
from pipeline.errors import PlanError
from pipeline.frontends.tflite.reference import open_interpreter
from tests.frontends.tflite.test_tflite import Writer, schema
from tests.support.onnx_models import weights


def filter_model(folder: Path) -> Path:
    """Write a model of an SVDF, which remembers the latest frames, between two operators that do not."""
    writer = Writer(1, 8)
    first = writer.add("TANH", [0], writer.tensor("first", (1, 8)))
    state = writer.tensor("state", (1, 4 * 6))
    writer.graph.tensors[state].isVariable = True
    features, times = writer.constant("features", weights(4, 8)), writer.constant("times", weights(4, 6))
    remembered = writer.add(
        "SVDF", [first, features, times, -1, state], writer.tensor("remembered", (1, 4)), options="SVDFOptions", rank=1
    )
    return writer.save(folder / "filter.tflite", writer.add("ABS", [remembered], writer.tensor("y", (1, 4))))


def counter_model(folder: Path, first: float = 0.0) -> Path:
    """Write a model that adds up its frames in a variable."""
    writer = Writer(1, 4)
    handle = writer.tensor("handle", ())
    writer.graph.tensors[handle].type = schema.TensorType.RESOURCE
    writer.add("VAR_HANDLE", [], handle, options="VarHandleOptions", container="", sharedName="sum")
    total = writer.add("READ_VARIABLE", [handle], writer.tensor("total", (1, 4)), options="ReadVariableOptions")
    result = writer.add("ADD", [total, 0], writer.tensor("sum", (1, 4)), options="AddOptions")
    writer.add("ASSIGN_VARIABLE", [handle, result], -1, options="AssignVariableOptions")
    writer.graph.operators[-1].outputs = []
    initialiser = schema.SubGraphT()
    initialiser.tensors, initialiser.inputs, initialiser.outputs = [], [], []
    zeros = writer.constant("zeros", np.full((1, 4), first, np.float32))
    initialiser.tensors = [writer.graph.tensors[handle], writer.graph.tensors[zeros]]
    initialiser.operators = [writer.graph.operators[0], schema.OperatorT()]
    assign = initialiser.operators[1]
    assign.opcodeIndex = writer.graph.operators[-1].opcodeIndex
    assign.inputs, assign.outputs = [0, 1], []
    assign.builtinOptionsType = writer.graph.operators[-1].builtinOptionsType
    assign.builtinOptions = writer.graph.operators[-1].builtinOptions
    writer.model.subgraphs.append(initialiser)
    writer.add("CALL_ONCE", [], -1, options="CallOnceOptions", initSubgraphIndex=1)
    once = writer.graph.operators.pop()
    once.outputs = []
    writer.graph.operators[0] = copy_with(writer.graph.operators[0], outputs=[handle])
    initialiser.operators[0] = copy_with(initialiser.operators[0], outputs=[0])
    writer.graph.operators.insert(0, once)
    return writer.save(folder / "counter.tflite", writer.add("TANH", [result], writer.tensor("y", (1, 4))))


def copy_with(table: Any, **changes: Any) -> Any:
    copy = type(table)()
    copy.__dict__.update(table.__dict__ | changes)
    return copy


def run_litert(path: Path, frames: list[dict[str, np.ndarray]]) -> Iterator[np.ndarray]:
    interpreter = open_interpreter(model_path=str(path))
    for frame in frames:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], frame["x"])
        interpreter.invoke()
        yield np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize(("write", "keeps_state"), [(filter_model, [True]), (counter_model, [])])
def test_frames_follow_one_another(tmp_path: Path, write: Any, keeps_state: list[bool]) -> None:
    path = write(tmp_path)
    graph = pipeline.read(path)
    assert [island.keeps_state for island in graph.islands] == keeps_state
    frames = [random_frame(graph.frame_inputs, seed) for seed in range(12)]
    expected = list(run_litert(path, frames))
    alone = next(run_litert(path, frames[-1:]))
    assert not np.allclose(expected[-1], alone)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    # Each time from the beginning, also where a thread has run the stage before.
    for _ in range(2):
        with pipeline.load(bundle) as running:
            for outputs, reference in zip(running.map(frames), expected, strict=True):
                np.testing.assert_allclose(outputs, reference, rtol=1e-5, atol=1e-6)
    assert pipeline.verify(graph, path).relative < 1e-5


def test_variables_are_kept_for_each_stream(tmp_path: Path) -> None:
    """They begin with the values of the file, and again after a reset."""
    path = counter_model(tmp_path, first=0.25)
    graph = pipeline.read(path)
    (state,) = graph.states
    assert (state.input.shape, state.initial) == ((1, 4), (0.25,))
    plan = pipeline.plan(graph, stages=1)
    assert [spec.name for spec in plan.inputs] == ["x"]
    frames = {name: [random_frame(plan.inputs, seed) for seed in range(12)] for name in "ab"}
    with pipeline.load(pipeline.build(graph, plan)) as running:
        for _ in range(2):
            futures = [
                (name, running.submit(frame, stream=name))
                for pair in zip(frames["a"], frames["b"][::-1], strict=True)
                for name, frame in zip("ab", pair, strict=True)
            ]
            for name, stream in (("a", frames["a"]), ("b", frames["b"][::-1])):
                results = [future.result() for stream_name, future in futures if stream_name == name]
                np.testing.assert_allclose(results, list(run_litert(path, stream)), rtol=1e-5, atol=1e-6)
            running.reset(None)


def test_replicas_are_refused(tmp_path: Path) -> None:
    graph = pipeline.read(filter_model(tmp_path))
    board = Board("host", (Device("cpu", cores=(0, 1)),))
    plan = pipeline.plan(graph, board)
    assert all(stage.replicas == 1 for stage in plan.stages)
    plan = pipeline.plan(graph, board, stages=1)
    plan = dataclasses.replace(plan, stages=(dataclasses.replace(plan.stages[0], replicas=2, cores=()),))
    with pytest.raises(
        PlanError, match=r"keeps state from one frame to the next \(SVDF \(remembered\)\), but has 2 rep"
    ):
        pipeline.build(graph, plan)
