"""Vendors' compilers say what they run, in how many cycles: a stand-in with RKNN's table, and the real one (slow)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError
from pipeline.executor.devices.vendor import VendorRuntime
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.quotes import Quotes, find_quotes
from pipeline.measure.quotes.compilers import variable
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from tests.support.onnx_models import node, save, weights
from tests.support.rknn_compiler import install_rknn

NPU = Device(
    "npu", "vendor", launch_s=1e-6, bytes_per_s=1e9, memory_bytes_per_s=2e9, flops=1e9,
    target={"kind": "vendor", "loader": "rknn", "quotes": {"compiler": "rknn", "chip": "rk3588", "clock_hz": 1e9}},
)  # fmt: skip
BOARD = Board("b", (Device("cpu", cores=(0,)), NPU))


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with a letter for each model that the stand-in's compiler has seen."""
    return install_rknn(tmp_path, monkeypatch)


def read(folder: Path, middle: Any) -> Graph:
    nodes = [
        node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b", "activation"),
        middle,
        node("Conv", "c w", "y", "last", pads=[1, 1, 1, 1]),
    ]
    save(folder / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)})
    return pipeline.read(folder / "m.onnx")


def quote(graph: Graph, folder: Path, board: Board = BOARD) -> Quotes:
    return find_quotes(graph, board, cache=CostCache(folder / "cache"))


def groups(graph: Graph, *names: str) -> list[int]:
    return [next(operator.group for operator in graph.operators if operator.name == name) for name in names]


def test_cycles_become_seconds_and_bytes_where_none_are_counted(compiles: Path, tmp_path: Path) -> None:
    graph = read(tmp_path, node("MaxPool", "b", "c", "pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    quotes = quote(graph, tmp_path)
    seconds = np.array(quotes.seconds["npu"])[groups(graph, "first", "pool", "last")]
    # Each reads 7 KiB and writes 288 bytes.
    moves_s = (7 * 1024 + 288) / 2e9
    np.testing.assert_allclose(seconds, [3000 / 1e9 + moves_s, moves_s, 3000 / 1e9 + moves_s])
    assert quotes.refusals["npu"] == {}
    assert "cycles of 2 of 3 layers are rknn-toolkit2 9.8's, in float16" in quotes.notes[0]
    planner = Planner(graph, BOARD, estimates=quotes.seconds)
    assert planner.seconds(NPU) == quotes.seconds["npu"]
    assert compiles.read_text() == "x"


def test_operators_left_to_the_cpu_are_refused(compiles: Path, tmp_path: Path) -> None:
    graph = read(tmp_path, node("Softmax", "b", "c", "power", axis=1))
    quotes = quote(graph, tmp_path)
    (group,) = groups(graph, "power")
    assert quotes.refusals["npu"] == {group: "its compiler leaves it to the CPU"}
    assert np.isinf(quotes.seconds["npu"][group])


def test_a_group_with_one_operator_on_the_cpu_is_refused(compiles: Path, tmp_path: Path) -> None:
    """RKNN's runtime would compute it there, unseen."""
    graph = read(tmp_path, node("Exp", "b", "c", "power"))
    (group,) = groups(graph, "power")
    assert groups(graph, "first") == [group]
    assert quote(graph, tmp_path).refusals["npu"] == {group: "its compiler leaves it to the CPU"}


def test_what_cannot_be_compiled_is_found_by_halves(compiles: Path, tmp_path: Path) -> None:
    graph = read(tmp_path, node("Sin", "b", "c", "wave"))
    quotes = quote(graph, tmp_path)
    (group,) = groups(graph, "wave")
    assert "unsupported operator: Sin" in quotes.refusals["npu"][group]
    assert np.isfinite(quotes.seconds["npu"][groups(graph, "last")[0]])


def test_answers_are_kept_and_cores_asked_for_once(compiles: Path, tmp_path: Path) -> None:
    graph = read(tmp_path, node("Softmax", "b", "c", "power", axis=1))
    board = Board("b", (*BOARD.devices, replace(NPU, name="npu1")))
    quotes = quote(graph, tmp_path, board)
    assert quotes.seconds["npu"] == quotes.seconds["npu1"]
    assert quote(graph, tmp_path, board) == quotes
    assert compiles.read_text() == "x"


def test_without_a_compiler_nothing_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable("rknn"), raising=False)
    graph = read(tmp_path, node("Softmax", "b", "c", "power", axis=1))
    (note,) = quote(graph, tmp_path).notes
    assert "estimates; --tool rknn=PYTHON or SOC_PIPELINE_RKNN_PYTHON lets" in note
    assert quote(graph, tmp_path) == Quotes(notes=(note,))


@pytest.mark.parametrize(
    ("quotes", "message"),
    [
        ("rknn", "it must be a table of compiler, chip, clock_hz"),
        ({"compiler": "rknn", "chip": "rk3588"}, "it must be a table of"),
        ({"compiler": "rknn", "chip": "rk3588", "clock_hz": 0}, "cycles per second above 0"),
    ],
)
def test_tables_that_are_none(quotes: Any, message: str) -> None:
    target = {"kind": "vendor", "loader": "rknn", "quotes": quotes}
    with pytest.raises(BoardError, match=message):
        VendorRuntime.check(replace(NPU, target=target))


def test_unknown_compilers_are_named(tmp_path: Path) -> None:
    target = {"loader": "rknn", "quotes": {"compiler": "none", "chip": "a", "clock_hz": 1e9}}
    graph = read(tmp_path, node("Softmax", "b", "c", "power", axis=1))
    with pytest.raises(BoardError, match="'none' is no compiler that quotes; known are rknn"):
        quote(graph, tmp_path, Board("b", (replace(NPU, target=target),)))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chip", ["rk3588", "rk3566"])
def test_the_real_compiler_counts_cycles(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(os.environ.get(variable("rknn")) or ".venv/rknn/bin/python").absolute()
    if not python.exists():
        pytest.skip("rknn-toolkit2 is not installed; run: make rknn")
    monkeypatch.setenv(variable("rknn"), str(python))
    graph = read(tmp_path, node("MaxPool", "b", "c", "pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    quotes = quote(graph, tmp_path, boards.get(chip))
    for name, seconds in quotes.seconds.items():
        assert 0 < sum(seconds) < 1e-3
        assert quotes.refusals[name] == {}
    assert "cycles of 2 of 3 layers are rknn-toolkit2" in quotes.notes[0]
