"""Times that a busy machine has spoilt: measured again, and not believed if that does not help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.board.board import Board, Device
from pipeline.measure.plausibility import choose_plausible
from pipeline.prediction.predict import predict
from pipeline.split.planning.planner import Planner
from tests.support.planning import chain_graph

CORES = Board("b", (Device("cpu", cores=(0, 1)),))


Choose = Callable[..., tuple[list[bool], list[str], float]]


@pytest.fixture
def choose(tmp_path: Path) -> Choose:
    """Plan groups that take a second while both cores compute, and alone as long as is given for each measurement."""
    graph = chain_graph(tmp_path)
    count = len(graph.operators)

    def choose(*times: float, board: Board = CORES) -> tuple[list[bool], list[str], float]:
        calls: list[bool] = []
        warnings: list[str] = []

        def make(fresh: bool) -> Planner:
            calls.append(fresh)
            seconds = times[len(calls) - 1]
            return Planner(graph, board, {"cpu": [seconds] * count}, contended={"cpu": [1.0] * count})

        choice = choose_plausible(make, {"stages": 2}, warn=warnings.append)
        return calls, warnings, choice.plan.unsplit_seconds * predict(choice.plan).frames_per_s

    return choose


def test_times_that_agree_are_believed(choose: Choose) -> None:
    assert choose(0.9) == ([False], [], pytest.approx(1.8, rel=1e-4))
    # Two caches hold more than one.
    assert choose(1.2)[:2] == ([False], [])


def test_a_gain_above_the_number_of_cores_is_measured_again(choose: Choose) -> None:
    calls, warnings, gain = choose(1.55, 0.9)
    assert (calls, warnings) == ([False, True], [])
    assert gain == pytest.approx(1.8, rel=1e-4)


def test_a_machine_that_stays_busy_is_told_of(choose: Choose) -> None:
    calls, warnings, _ = choose(1.55, 1.6)
    assert calls == [False, True]
    (text,) = warnings
    assert text.startswith("do not believe this plan: the measured times make 2 cores 3.20 times as fast as one; ")


def test_what_does_not_run_on_cores_may_be_as_fast_as_it_likes(choose: Choose) -> None:
    board = Board("b", (Device("cpu", "simulated", cores=(0, 1)),))
    assert choose(5.0, board=board)[:2] == ([False], [])
