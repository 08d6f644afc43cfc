"""Cost of the live view to the stream.

Frames stream through stages that compute for a known time, by NumPy's products of matrices, which take no interpreter;
in turns:

off   no view
idle  a view and a trace, nobody looks
on    a view and a trace; a program of its own reads all updates

Every frame carries an image, which the view copies and shows.  A browser that draws on the same machine takes its own
time of the cores; that is not counted here.

frames_per_s     median over the rounds
ratio            of frames_per_s to that of 'off' in the same round, median over the rounds
updates_per_s    what the reader got
ms_per_update    time of a core that one update takes in the server's thread, at most: with a new frame each time
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice, pairwise
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from report import Row, median, parser, report, usable_cores

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.observe import web
from pipeline.observe.web.server import EVENTS
from pipeline.observe.web.update import WatchedPipeline
from pipeline.scheduler import Pipeline, Trace

SIDES = ("off", "idle", "on")
SHAPE = (1, 3, 240, 320)
# A product of two 96 x 96 matrices is 1.8 MFLOP: tens of microseconds without the interpreter, far more than its call.
STAGES, STAGE_S, SIDE = 2, 0.004, 96
READER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as answer:
    answer.readline()
    print("ready", flush=True)
    print(sum(line.startswith(b"data: ") for line in answer), flush=True)
"""


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, frames = (9, 250) if options.quick else (61, 500)
    plan, codes = chain()
    samples: dict[str, list[float]] = {side: [] for side in SIDES}
    updates: list[float] = []
    for number in range(rounds + 1):
        # The order changes, so that none always follows the same one; the first round only warms up.
        for side in SIDES if number % 2 else SIDES[::-1]:
            rate, read = stream(plan, codes, frames, side)
            if number:
                samples[side].append(rate)
                updates += [read] if side == "on" else []
    cost = update_alone(plan)
    rows = [row(side, samples, updates, cost) for side in SIDES]
    report("The cost of the live view", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def chain() -> tuple[Plan, list[Any]]:
    """Return stages of some milliseconds, and their functions."""
    image = TensorSpec("image", SHAPE)
    specs = [image, *(TensorSpec(f"t{number}", (SIDE,)) for number in range(STAGES))]
    stages = tuple(
        StagePlan(f"stage{number}", "python", (reads,), (writes,))
        for number, (reads, writes) in enumerate(pairwise(specs))
    )
    plan = Plan("view", "", Board("python", (Device("python", "python"),)), (image,), (specs[-1],), stages)
    return plan, [work(times()) for _ in stages]


def work(count: int) -> Any:
    """Return a function of so many products."""
    matrix = np.full((SIDE, SIDE), 0.01, np.float32)
    out = np.empty_like(matrix)

    def run(_: np.ndarray) -> np.ndarray:
        for _repeat in range(count):
            np.matmul(matrix, matrix, out=out)
        result: np.ndarray = out[0].copy()
        return result

    return run


def times() -> int:
    """Return how many products take the time of a stage, on one core."""
    function = work(100)
    function(np.empty(0))
    begin = perf_counter()
    function(np.empty(0))
    return max(1, round(100 * STAGE_S / (perf_counter() - begin)))


def stream(plan: Plan, codes: list[Any], frames: int, side: str) -> tuple[float, float]:
    """Return the frames per second, and the updates per second that were read."""
    images = [np.random.default_rng(seed).random(SHAPE, np.float32) for seed in range(4)]
    trace = None if side == "off" else Trace(EVENTS)
    with Pipeline(plan, codes, trace=trace) as running, ExitStack() as stack:
        reader = None
        if side != "off":
            server = stack.enter_context(web.serve(running))
            reader = stack.enter_context(reading(server.url)) if side == "on" else None
        for result in running.map(islice(cycle(images), 20), copy=False):
            del result
        begin = perf_counter()
        for result in running.map(islice(cycle(images), frames), copy=False):
            del result
        seconds = perf_counter() - begin
        stack.close()
    return frames / seconds, int(reader.communicate()[0]) / seconds if reader is not None else 0.0


@contextmanager
def reading(url: str) -> Iterator[subprocess.Popen[str]]:
    """Let a program of its own read the updates until the server ends."""
    reader = subprocess.Popen([sys.executable, "-c", READER, f"{url}events"], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    reader.stdout.readline()
    yield reader


def update_alone(plan: Plan, count: int = 20) -> float:
    """Return the seconds of a core that one update takes, with all buffers full."""
    image = np.random.default_rng(0).random(SHAPE, np.float32)
    spent = []
    with Pipeline(plan, [work(1)] * STAGES, trace=Trace(EVENTS)) as running:
        watched = WatchedPipeline(running)
        # More than the 1,024 frames that the percentiles look back on: an update costs most when they are full.
        list(running.map([image] * 1100))
        for _ in range(count):
            running.submit(image).result()
            begin = thread_time()
            watched.update()
            spent.append(thread_time() - begin)
    return median(spent)


def row(side: str, samples: dict[str, list[float]], updates: list[float], cost: float) -> Row:
    """Return one line of the table."""
    return {
        "side": side,
        "stages": STAGES,
        "cores": len(usable_cores()),
        "frames_per_s": median(samples[side]),
        "ratio": median([mine / off for mine, off in zip(samples[side], samples["off"], strict=True)]),
        "updates_per_s": median(updates) if side == "on" else None,
        "ms_per_update": cost * 1e3 if side == "on" else None,
    }


if __name__ == "__main__":
    main()
