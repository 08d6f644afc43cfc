"""Pools of which two of four members misbehave: what a stream loses, and how fast it is.

Every server is a process of its own that greets as it should; its stage sleeps for 10 ms.  Two of the four are good.
In turns with each way to misbehave runs a pool of these two alone.

failed        frames that were lost, of all
frames_per_s  of the four
good_per_s    of the two good ones alone
ratio         of these two
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
from report import Row, median, parser, report

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.scheduler import Pipeline

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.support.misbehaving_server import WAYS  # noqa: E402 - see above

STAGE_S, FRAMES, ROUNDS = 0.01, 1000, 3
ELEMENTS = 25_000
"""Of a tensor of 100 kB."""

SERVER = """
import sys, threading
from tests.support.misbehaving_server import MisbehavingServer

server = MisbehavingServer(sys.argv[1], float(sys.argv[2]))
print(server.port, flush=True)
threading.Event().wait()
"""


def main() -> None:
    options = parser(__doc__).parse_args()
    frames, rounds = (400, 1) if options.quick else (FRAMES, ROUNDS)
    rows = [measure(way, frames, rounds) for way in WAYS]
    report("Two of four members that misbehave", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


def measure(way: str, frames: int, rounds: int) -> Row:
    """Return what becomes of streams whose servers misbehave in one way."""
    failed, rates, good_rates = 0, [], []
    for _ in range(rounds):
        with serving("good", "good") as good:
            good_rates.append(stream(good, frames)[0])
            with serving(way, way) as bad:
                rate, errors = stream([*bad, *good], frames)
        rates.append(rate)
        failed += errors
    return {
        "two of four": way,
        "frames": frames * rounds,
        "failed": failed,
        "frames_per_s": median(rates),
        "good_per_s": median(good_rates),
        "ratio": median(rates) / median(good_rates),
    }


def stream(ports: Sequence[int], frames: int) -> tuple[float, int]:
    """Return the frames per second with results of a pool, and how many frames failed."""
    array = np.zeros(ELEMENTS, np.float32)
    with Pipeline(plan(ports)) as running:
        begin = perf_counter()
        futures = [running.submit(array, copy=False) for _ in range(frames)]
        failed = sum(future.exception() is not None for future in futures)
        return (frames - failed) / (perf_counter() - begin), failed


def plan(ports: Sequence[int]) -> Plan:
    """Return one stage on all members."""
    x, y = TensorSpec("x", (ELEMENTS,)), TensorSpec("y", (ELEMENTS,))
    address = "pool:" + ",".join(f"remote://127.0.0.1:{port}/simulated?timeout=1&patience=2" for port in ports)
    board = Board("pool", (Device("pool", "remote", address=address, memory="there"),))
    stage = StagePlan("stage", "pool", (x,), (y,), seconds=STAGE_S, replicas=2 * len(ports), queue_depth=16)
    return Plan("pool", "", board, (x,), (y,), (stage,))


@contextlib.contextmanager
def serving(*ways: str) -> Iterator[list[int]]:
    """Give the ports of servers that behave in these ways."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for way in ways:
            line = [sys.executable, "-c", SERVER, way, str(STAGE_S)]
            processes.append(subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        yield [int(process.stdout.readline()) for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    main()
