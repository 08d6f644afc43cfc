"""The layout at the borders of a stage, and inside of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.executable import CompileOptions
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.group_times import GroupTimer
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.support.onnx_models import HOST, node, save


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    weights = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", "x w", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "b w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Flatten", "c", "y"),
    ]
    return pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (1, 8, 6, 6)}, ["y"], {"w": weights}))


def run(part: extract.GraphPart, value: np.ndarray, channels_last: set[str] | None = None) -> np.ndarray:
    runtime = CpuRuntime(HOST)
    code = compile_stage(extract.module(part), HOST, options=CompileOptions(channels_last=channels_last))
    program = runtime.load(StagePlan("s", "cpu", part.inputs, part.outputs), code)
    return np.array(runtime.copy_out(runtime.run(program, [runtime.copy_in(value)])[0]))


def test_the_inside_of_a_stage_takes_and_makes_channels_last(graph: Graph) -> None:
    pool = extract.parts(graph, graph.group_ends[:-1])[1]
    value = np.random.default_rng(1).standard_normal((1, 8, 6, 6)).astype(np.float32)
    channels_last = {"a"}
    result = run(pool, np.ascontiguousarray(value.transpose(0, 2, 3, 1)), channels_last)
    assert channels_last == {"a", "b"}
    np.testing.assert_array_equal(result, run(pool, value).transpose(0, 2, 3, 1))


def test_what_is_not_an_image_keeps_its_layout(graph: Graph) -> None:
    last = extract.parts(graph, graph.group_ends[:-1])[-1]
    channels_last: set[str] = set()
    value = np.random.default_rng(1).standard_normal((1, 8, 3, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(last, value, channels_last), run(last, value))
    assert not channels_last


def test_groups_are_measured_as_the_inside_of_a_stage(graph: Graph) -> None:
    parts = extract.parts(graph, graph.group_ends[:-1])
    pairs = [(StagePlan("g", "cpu", part.inputs, part.outputs), extract.module(part)) for part in parts]
    timer = GroupTimer(HOST, 1, CostCache(None))
    groups = timer.prepare(pairs, lambda _: None)
    assert all(seconds > 0 for seconds in timer.time(groups).isolated)
    # The first convolution changes the model's own layout, and flattening changes it back.
    assert [[layout.inner for layout in group.outputs] for group in groups] == [[True], [True], [True], [False]]
    rules = [[call.rule for call in group.code.calls or ()] for group in groups if group.code is not None]
    assert rules == [["general", "convolution"], ["pool"], ["convolution"], ["general"]]
