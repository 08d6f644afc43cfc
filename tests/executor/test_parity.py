"""Stages are compared with the unsplit model, and differences are found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Board
from pipeline.errors import BuildError
from pipeline.executor.build import compile_plan
from pipeline.executor.bundle import Bundle
from pipeline.executor.parity import check_parity
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import ModuleSource
from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.workflow import unsplit
from tests.support.onnx_models import IMAGE, node, save, weights


def tamper(code: StageCode | None, value: float) -> StageCode:
    """Return a stage in which one weight is another one."""
    assert code is not None
    parameters = {name: array.copy() for name, array in code.parameters.items()}
    next(iter(parameters.values())).flat[0] = value
    return StageCode(code.module, parameters, executable=code.executable, machine=code.machine, features=code.features)


def test_parity_is_reported(small_bundle: Bundle) -> None:
    assert small_bundle.parity.relative <= 1e-6
    assert small_bundle.parity.largest_value > 0.1
    assert (small_bundle.parity.tolerance, small_bundle.parity.seed) == (1e-5, 0)


def test_without_the_check_there_is_no_parity(graph: Graph, board: Board) -> None:
    assert pipeline.build(graph, pipeline.plan(graph, board, stages=1), check=False).parity is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (50.0, r"the stages differ from the unsplit model by .* of the largest output .*; allowed is 1e-05"),
        (np.nan, "output '.' of the stages is not finite where it is by the unsplit model"),
        (np.inf, "output '.' of the stages is not finite"),
    ],
)
def test_a_changed_weight_is_found(
    small_bundle: Bundle, graph: Graph, board: Board, value: float, message: str
) -> None:
    reference = unsplit.outputs_of(graph, small_bundle.plan, [random_frame(graph.inputs, 0)])[0]
    stages = list(
        zip(small_bundle.plan.stages, [*small_bundle.codes[:-1], tamper(small_bundle.codes[-1], value)], strict=True)
    )
    with pytest.raises(BuildError, match=message):
        check_parity(small_bundle.plan, stages, reference, tolerance=1e-5)


def test_a_stage_of_another_model_with_the_same_shapes_is_found(tmp_path: Path, board: Board) -> None:
    """The same plan and digest, other weights in the first stage: only running it shows the difference."""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Softmax", "c", "y", axis=1)]
    first, second = (
        pipeline.read(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], {"w": weights(4, 4, 3, 3, seed=seed)}))
        for seed in (1, 2)
    )
    plan = pipeline.plan(first, board, stages=2)
    assert plan.digest == second.digest
    mixed_graph = dataclasses.replace(
        first, operators=(dataclasses.replace(first.operators[0], lines=second.operators[0].lines), first.operators[1])
    )
    small_bundle = pipeline.build(first, plan)
    sources = [ModuleSource(extract.module(part)) for part in extract.parts(mixed_graph, [1])]
    odd_codes = compile_plan(plan, sources, lambda _: None)
    reference = unsplit.outputs_of(first, plan, [random_frame(first.inputs, 0)])[0]
    assert small_bundle.parity.relative < 1e-6
    with pytest.raises(BuildError, match="the stages differ"):
        check_parity(plan, list(zip(plan.stages, odd_codes, strict=True)), reference, tolerance=1e-5)  # type: ignore[arg-type]


def test_a_tolerance_of_nothing_allows_equality(graph: Graph, board: Board) -> None:
    assert pipeline.build(graph, pipeline.plan(graph, board, stages=1), tolerance=0).parity.largest_error == 0
