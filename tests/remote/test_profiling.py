"""A model is measured on servers, by their own clocks; where it cannot be, the profile says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.board import Board, Device, Link
from pipeline.executor import profile as bench
from pipeline.executor.cost_cache import CostCache
from pipeline.profiling import profile
from pipeline.split.costs import estimate
from pipeline.split.graph import Graph
from pipeline.split.planner import Planner
from tests.onnx_models import node, save
from tests.remote.conftest import Child


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ENOUGH_S", 0.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Softmax", "x", "a"), node("ReduceMean", "a", "y", axes=[1])]
    return pipeline.read(save(tmp_path_factory.mktemp("profile") / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))


def far(address: str, **options: Any) -> Board:
    there = Device("there", options.pop("kind", "remote"), address=address, memory="there", **options)
    return Board("two machines", (Device("cpu", cores=(0,)), there), (Link(("host", "there"), 1.0),))


def test_a_device_elsewhere_is_measured_there(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, uploads = CostCache(tmp_path / "costs"), tmp_path / "uploads"
    server = serve("--accept-uploads", "--uploads", uploads)
    found = profile(graph, far(server.address("cpu", "?timeout=30")), cache=cache)
    assert found.estimated == {}
    assert len(found.measured["there"]) == 2
    assert all(0 < each < 0.1 for each in found.measured["there"])
    (link,) = found.board.links
    assert link.measured
    assert link.bytes_per_s > 1e6
    assert found.board.device("there").target is None, "the board's own word"
    assert Planner(graph, found.board, found.measured).plan(devices=["cpu", "there"]).measured
    # Another address leads to the same kind of machine: nothing is built or sent again.
    monkeypatch.setattr(bench, "compile_stage", lambda *_, **__: pytest.fail("built again"))
    other = serve()
    again = profile(graph, far(other.address("cpu", "?timeout=30")), cache=cache)
    assert again.seconds == found.seconds


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
        found = profile(graph, far(address, **options), cache=CostCache(tmp_path))
        assert list(found.estimated) == ["there"]
        assert reason in found.estimated["there"]
        assert found.seconds["there"] == tuple(estimate(graph, found.board.device("there")))
