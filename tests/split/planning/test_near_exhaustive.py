"""On real networks and boards, no legal plan that exhaustive search finds is faster than the planner's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import models
import numpy as np
import pytest

import boards
import pipeline
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.solver import Solver
from tests.support.exhaustive import legal_plans

BOARDS = ("jetson-nano", "jetson-orin-nano", "kv260", "pynq-z2", "raspberry-pi-4", "rk3588", "ultra96", "zcu104")
POSITIONS = 5


@cache
def graph(name: str, folder: Path) -> Graph:
    return pipeline.read(models.write(name, folder))


def small(problem: Problem) -> Problem:
    """Return a part of the problem that exhaustive search gets through: few cuts, one core or all of a cluster."""
    most_threads = max(choice.threads for choice in problem.choices)
    choices = tuple(
        each for each in problem.choices if each.threads in (0, 1, most_threads) and each.replicas in (1, 3)
    )
    return replace(problem, choices=choices).merge_items(problem.spread_positions(POSITIONS))


def check(planner: Planner) -> None:
    problem = small(planner.problem())
    solution = Solver(problem).fastest()
    best = min(each.interval for each in legal_plans(problem))
    assert solution is not None
    assert solution.interval <= best * 1.001


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.one_in(4)
def test_measured_like_costs_of_a_trained_network(digits_onnx: Path, board: str, seed: int) -> None:
    """As measurements are: no estimate holds for all operators."""
    planner = Planner(pipeline.read(digits_onnx), boards.get(board))
    generator = np.random.default_rng(seed)
    groups = len(planner.graph.group_ends)
    seconds = {
        device.name: (np.array(planner.seconds(device)) * generator.lognormal(0, 0.7, groups)).tolist()
        for device in planner.board.devices
    }
    check(replace(planner, isolated=seconds))


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", models.NAMES[:6])
def test_estimated_costs_of_well_known_networks(
    tmp_path_factory: pytest.TempPathFactory, name: str, board: str
) -> None:
    check(Planner(graph(name, tmp_path_factory.getbasetemp()), boards.get(board)))


@pytest.mark.slow
def test_profiled_costs(digits_onnx: Path) -> None:
    from pipeline.measure.profile import profile

    read = pipeline.read(digits_onnx)
    profiled = profile(read)
    check(Planner(read, profiled.board, profiled.seconds))
