"""Frames come evenly, at random or as recorded, and are simulated so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import PlanError
from pipeline.simulation import read_arrivals, simulate
from pipeline.simulation.arrivals import arrival_times

X, Y = TensorSpec("x", (4,)), TensorSpec("y", (4,))


def one_stage(milliseconds: float) -> Plan:
    stage = StagePlan("s", "device", (X,), (Y,), seconds=milliseconds * 1e-3, queue_depth=1)
    return Plan("m", "", Board("b", (Device("device", "simulated"),)), (X,), (Y,), (stage,))


def test_poisson_arrivals_have_their_mean_and_its_variation() -> None:
    count, times = arrival_times("poisson", 20_000, 50.0, seed=3)
    assert times is not None
    gaps = np.diff(times)
    assert (count, times[0]) == (20_000, 0.0)
    assert gaps.mean() == pytest.approx(0.02, rel=0.03)
    # Of an exponential distribution, the standard deviation is the mean.
    assert gaps.std() == pytest.approx(0.02, rel=0.05)
    again, other = (arrival_times("poisson", 20_000, 50.0, seed)[1] for seed in (3, 4))
    assert np.array_equal(times, again)  # type: ignore[arg-type]
    assert not np.array_equal(times, other)  # type: ignore[arg-type]


def test_frames_that_come_at_random_wait_as_queueing_theory_says() -> None:
    result = simulate(one_stage(10), frames=20_000, fps=50, arrivals="poisson", overhead=0.0)
    assert result.frames_per_s == pytest.approx(50, rel=0.03)
    assert result.stages[0].busy == pytest.approx(0.5, rel=0.03)
    waits = lindley_waits(20_000, 50.0, 10e-3)
    # M/D/1: with a server that is busy half of the time, the mean wait is half of the service.
    assert np.mean(waits) == pytest.approx(5e-3, rel=0.1)
    for name, percentile in (("p50", 50), ("p95", 95), ("p99", 99)):
        reference = np.percentile(waits, percentile) + 10e-3
        assert getattr(result.since_arrival_s, name) == pytest.approx(reference, rel=0.01)


def lindley_waits(frames: int, fps: float, service: float) -> list[float]:
    """Return the seconds that each frame waits in front of one server, by Lindley's recursion over the arrivals."""
    _, times = arrival_times("poisson", frames, fps, 0)
    assert times is not None
    waits = [0.0]
    for gap in np.diff(times):
        waits.append(max(0.0, waits[-1] + service - gap))
    return waits


def test_recorded_arrivals_are_followed() -> None:
    # A burst of three, then a pause: the second waits for one service, the third for two.
    result = simulate(one_stage(10), arrivals=[100.0, 100.0, 100.0, 100.5], overhead=0.0)
    assert (result.frames, result.delivered) == (4, 4)
    assert result.seconds == pytest.approx(0.51)
    assert result.since_arrival_s.p99 == pytest.approx(30e-3, rel=0.05)
    assert simulate(one_stage(10), arrivals=[0.0, 0.1, 0.2, 9.0], frames=3).seconds < 0.3


def test_recorded_arrivals_drop_what_finds_no_room() -> None:
    result = simulate(one_stage(10), arrivals=[0.0, 0.001, 0.002, 0.003, 1.0], admission="latest", overhead=0.0)
    assert result.delivered + sum(result.dropped.values()) == 5
    assert sum(result.dropped.values()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrivals": "poisson"}, "needs a rate; say with fps"),
        ({"arrivals": "uniform", "fps": 3.0}, "arrivals are 'uniform'; they are 'even', 'poisson'"),
        ({"arrivals": [0.0, 1.0], "fps": 3.0}, "recorded, so that fps changes nothing"),
        ({"arrivals": [0.0, 1.0], "frames": 3}, "3 frames, but the arrivals of 2 are recorded"),
        ({"arrivals": [0.0, 2.0, 1.0]}, "arrival 2 is at 1 s, before the one in front of it, at 2 s"),
        ({"arrivals": [0.0, np.nan]}, "no finite number"),
        ({"arrivals": [1.0]}, "frames is 1; a rate needs at least 2"),
        ({"arrivals": []}, "frames is 0; a rate needs at least 2"),
    ],
)
def test_impossible_arrivals_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(one_stage(10), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0\n0.5\n2\n", "time,camera\n0,left\n0.5,left\n2,left\n", '# s\n"0"\n\n 0.5 \n2'])
def test_a_file_has_a_time_in_each_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text(text, encoding="utf-8")
    assert read_arrivals(str(path)) == [0.0, 0.5, 2.0]


def test_a_file_that_has_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("0\n0.5\nlate\n", encoding="utf-8")
    with pytest.raises(PlanError, match=r"arrivals\.csv, line 3: 'late' is no time"):
        read_arrivals(str(path))
    path.write_text("time\n0\nnan\n", encoding="utf-8")
    with pytest.raises(PlanError, match=r"arrivals\.csv, line 3: 'nan' is no time"):
        read_arrivals(str(path))
    path.write_text("time\n0\n", encoding="utf-8")
    with pytest.raises(PlanError, match=r"arrivals\.csv has 1 times; give those of two frames at least"):
        read_arrivals(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="it is no text"):
        read_arrivals(str(path))
    with pytest.raises(PlanError, match=r"cannot read the arrivals .*poison.*No such file.*'poisson'"):
        read_arrivals("poison")
