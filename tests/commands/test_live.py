from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import pytest
from rich.console import Console

from pipeline.commands.shared import live
from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics, StepStatistics

TIMES = Percentiles(0.0125, 0.02, 0.03)
STAGE = StageStatistics("detect", "npu", 41, 40, 1, 0, 0.93, 1.5, 2, Percentiles(0.001), Percentiles(0.0125), TIMES)
FOUND = Statistics(44, 39, 1, 0, MappingProxyType({"late": 2}), 2, 2.0, 19.5, TIMES, (STAGE,))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    previous_threads = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - previous_threads:
        thread.join(30)
        assert not thread.is_alive()


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_a_row_for_each_stage() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(live.table(FOUND))
    heading, row = text_of(console).splitlines()
    assert (heading.split()[0], len(heading)) == ("stage", len(row))
    assert row.split() == ["detect", "93%", "2", "12.500", "0.000", "0.000", "1.000", "12.500", "41", "40"]


def test_steps_have_rows_below_their_stage() -> None:
    step = StepStatistics("detect.step1", "vta", 0.75, Percentiles(0.002), Percentiles(0.005), Percentiles())
    console = Console(file=io.StringIO(), width=120)
    console.print(live.table(replace(FOUND, stages=(replace(STAGE, steps=(step,)),))))
    _, _, row = text_of(console).splitlines()
    # Half of the stage's own 1.5 s, which are 93 % of its workers' time.
    assert row.split() == ["detect.step1", "on", "vta", "46%", "5.000", "0.000", "0.000", "2.000", "0.000"]


def test_the_totals_name_every_end_that_occurred() -> None:
    assert live.totals(FOUND) == (
        "44 frames in, 2 in flight, 39 delivered, 1 failed, 2 dropped (late)\n"
        "19.5 frames/s, latency p50 12.500 ms, p99 30.000 ms"
    )


def test_nothing_is_read_or_written_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO())
    thread_count = threading.active_count()
    with live.Display("streaming", console=console) as display:
        display.watch(lambda: pytest.fail("read"))
        display.step("something else")
        assert threading.active_count() == thread_count
    assert text_of(console) == ""


def test_on_a_terminal_the_last_table_stays_without_the_spinner() -> None:
    console = terminal()
    with live.Display("streaming", console=console) as display:
        display.watch(lambda: FOUND)
        display.step("round 2")
    last = text_of(console).rpartition("stage")[2]
    assert "detect" in last
    assert "39 delivered" in last
    assert "round 2" not in last


def test_it_is_drawn_again_and_again_but_seldom() -> None:
    assert 1 <= live.PER_SECOND <= 4
    drawing = threading.Semaphore(0)

    def read() -> Statistics:
        drawing.release()
        return FOUND

    with live.Display("streaming", console=terminal(), per_second=100) as display:
        display.watch(read)
        assert all(drawing.acquire(timeout=30) for _ in range(3))


@pytest.mark.parametrize("keep", [True, False])
def test_a_stream_that_never_began_leaves_nothing(keep: bool) -> None:
    console = terminal()
    with live.Display("streaming", keep=keep, console=console):
        pass
    assert "stage" not in text_of(console)


def test_it_ends_with_an_error_too() -> None:
    console = terminal()
    with pytest.raises(ZeroDivisionError), live.Display("streaming", console=console) as display:
        display.watch(lambda: FOUND)
        raise ZeroDivisionError
    assert "\x1b[?25h" in text_of(console), "the cursor is back"
