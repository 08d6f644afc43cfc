"""A model is measured on servers, by their own clocks; where it cannot be, the profile says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.profile import profile
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.costs import estimate
from tests.remote.conftest import Child
from tests.support.onnx_models import node, save
from tests.support.sampling import QUICK

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Softmax", "x", "a"), node("ReduceMean", "a", "y", axes=[1])]
    return pipeline.read(save(tmp_path_factory.mktemp("profile") / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))


def far(address: str, **options: Any) -> Board:
    remote_device = Device("there", options.pop("kind", "remote"), address=address, memory="there", **options)
    return Board("two machines", (Device("cpu", cores=(0,)), remote_device), (Link(("host", "there"), 1.0),))


def test_a_device_elsewhere_is_measured_there(graph: Graph, serve: Callable[..., Child], tmp_path: Path) -> None:
    cache, uploads = CostCache(tmp_path / "costs"), tmp_path / "uploads"
    server = serve("--accept-uploads", "--uploads", uploads)
    costs = profile(graph, far(server.address("cpu", "?timeout=30")), cache=cache, sampling=QUICK)
    assert costs.estimated == {}
    assert len(costs.measured["there"]) == 2
    assert all(0 < each < 0.1 for each in costs.measured["there"])
    (link,) = costs.board.links
    assert link.measured
    assert link.bytes_per_s > 1e6
    assert costs.board.device("there").target is None, "the board's own word"
    assert Planner(graph, costs.board, costs.measured).plan(devices=["cpu", "there"]).measured
    # Another address leads to the same kind of machine: nothing is built or sent again.
    second_server = serve()
    second_costs = profile(graph, far(second_server.address("cpu", "?timeout=30")), cache=cache, progress=pytest.fail)
    assert second_costs.seconds == costs.seconds


def test_a_device_elsewhere_that_cannot_be_measured_is_estimated_and_says_why(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path
) -> None:
    for address, options, reason in (
        ("remote://127.0.0.1:1/cpu", {}, "nothing listens there"),
        (serve().address("cpu", "?timeout=30"), {}, "takes no uploads"),
        ("remote://127.0.0.1:1/simulated", {}, "/simulated computes nothing"),
        ("rpc://127.0.0.1:1/cpu", {"kind": "rpc"}, "cannot be asked for its target"),
        ("rpc://127.0.0.1:1/cpu", {"kind": "rpc", "target": {"kind": "llvm"}}, "nothing listens there"),
    ):
        costs = profile(graph, far(address, **options), cache=CostCache(tmp_path), sampling=QUICK)
        assert list(costs.estimated) == ["there"]
        assert reason in costs.estimated["there"]
        assert costs.seconds["there"] == tuple(estimate(graph, costs.board.device("there")))
