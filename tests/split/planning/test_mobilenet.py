"""Stages that borrow VTA, for a network of MobileNetV2's kind on boards with VTA."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import pipeline
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.planning.solver.chain_solver import ChainSolver
from pipeline.workflow.plan import PlannerOptions, make_planner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "gain"),
    # The faster a board's own cores are for what VTA cannot do, the less a worker gains that does both.
    [("ultra96-simulated", 1.7), ("pynq-z2", 3.8), ("zcu104", 1.7)],
)
def test_borrowing_vta_gives_many_more_frames_than_any_chain(
    board: str, gain: float, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(root / "bench"))
    mobilenet = import_module("mobilenet")
    graph = pipeline.read(mobilenet.write(tmp_path))
    planner = make_planner(graph, board, PlannerOptions(pin=dict.fromkeys(mobilenet.depthwise_names(), "cpu")))
    chain, plan = ChainSolver(planner.problem()).fastest(), planner.plan()
    assert chain is not None
    simulated = simulate(plan, frames=300).frames_per_s
    assert simulated >= gain / chain.interval
    assert predict(plan).frames_per_s == pytest.approx(simulated, rel=0.08)
    assert predict(plan).latency_s < chain.latency / 2
