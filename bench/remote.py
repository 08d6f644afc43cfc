"""Do transfers overlap with compute when a stage runs in another process?

Two stages of equal time, a tensor of the given size between them and as the result: the first one here, the second one
on ``soc-pipeline serve`` in a process of its own, over TCP on loopback.  Both stages are *simulated* (they sleep for
their time), so that what is measured does not depend on how many cores this machine has: transfers, messages and
scheduling remain.  The ideal is one frame per stage time.

replicas      workers of the second stage, each with a connection of its own; the server computes one frame at a time,
              so more than one only serves to send a frame while another one is computed
tls_per_s     frames per second through TLS, to a server of its own, in turns with the other one
tls_ratio     of those to the frames per second without
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from time import perf_counter

import numpy as np
from report import Row, median, parser, report

from pipeline.core.board import Board, Device
from pipeline.core.plan import Plan, StagePlan, TensorSpec
from pipeline.remote.credentials import create_credentials
from pipeline.scheduler import Pipeline

CASES = [(size, ms) for size in (100_000, 1_000_000) for ms in (10, 20, 50)] + [(10_000_000, 50)]
REPLICAS = (1, 2, 3)
SECONDS, ROUNDS = 2.0, 5
"""Of one measurement, and how many there are of each case."""

# Frames: enough to fill both stages with their replicas and the socket's buffers.
WARM_UP = 5


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (2, 1.0) if options.quick else (ROUNDS, SECONDS)
    cases = [(*case, replicas) for case in CASES for replicas in REPLICAS]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        keys = Path(name) / "keys"
        create_credentials(keys)
        plain = stack.enter_context(serve())
        encrypted = f"{stack.enter_context(serve('--tls', str(keys)))}?tls={keys / 'client'}"
        # All cases in turn, so that a disturbance meets all of them.
        samples = [
            [(measure(plain, *case, seconds), measure(encrypted, *case, seconds)) for case in cases]
            for _ in range(rounds)
        ]
    rows = [row(*case, rates) for case, rates in zip(cases, zip(*samples, strict=True), strict=True)]
    caption = "Both stages are simulated; medians."
    report("Two stages, one in another process", rows, caption, options.json)


@contextlib.contextmanager
def serve(*options: str) -> Iterator[str]:
    """Give the address of a new server."""
    line = [sys.executable, "-m", "pipeline.cli", "serve", "--port", "0", "--slots", "1", "--json", *options]
    root = Path(__file__).resolve().parent.parent
    child = subprocess.Popen(line, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with child:
        assert child.stdout is not None
        try:
            yield f"remote://127.0.0.1:{json.loads(child.stdout.readline())['port']}/simulated"
        finally:
            child.terminate()


def measure(address: str, size: int, stage_ms: float, replicas: int, seconds: float) -> float:
    """Return the frames per second of one run."""
    frames = WARM_UP + max(10, round(1e3 * seconds / stage_ms))
    array = np.zeros(size // 4, np.float32)
    with Pipeline(plan(address, size, stage_ms, replicas)) as running:
        times = [perf_counter() for _ in running.map(repeat(array, frames), copy=False)]
    return (frames - WARM_UP) / (times[-1] - times[WARM_UP - 1])


def plan(address: str, size: int, stage_ms: float, replicas: int) -> Plan:
    """Return the stages, the second one at the address."""
    x, y, z = (TensorSpec(name, (size // 4,)) for name in "xyz")
    board = Board("two", (Device("here", "simulated"), Device("there", "remote", address=address, memory="there")))
    stages = (
        StagePlan("first", "here", (x,), (y,), seconds=stage_ms / 1e3),
        StagePlan("second", "there", (y,), (z,), seconds=stage_ms / 1e3, replicas=replicas),
    )
    return Plan("remote", "", board, (x,), (z,), stages)


def row(size: int, stage_ms: float, replicas: int, rates: Sequence[tuple[float, float]]) -> Row:
    """Return one line of the table."""
    rate, tls_rate = (median(each) for each in zip(*rates, strict=True))
    return {
        "tensor_bytes": size,
        "stage_ms": stage_ms,
        "replicas": replicas,
        "frames_per_s": rate,
        "ideal_frames_per_s": 1e3 / stage_ms,
        "ratio": rate * stage_ms / 1e3,
        "tls_per_s": tls_rate,
        "tls_ratio": tls_rate / rate,
    }


if __name__ == "__main__":
    main()
