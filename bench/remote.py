"""Do transfers overlap with compute when a stage runs in another process?

Two stages of equal time, a tensor of the given size between them and as the result: the first one here, the second one
on ``soc-pipeline serve`` in a process of its own, over TCP by this machine's address in its network: on loopback, large
tensors would go through shared memory.  Both stages are *simulated* (they sleep for
their time), so that what is measured does not depend on how many cores this machine has: transfers, messages and
scheduling remain.  The ideal is one frame per stage time.

replicas      workers of the second stage, each with a connection of its own; the server computes one frame at a time,
              so more than one only serves to send a frame while another one is computed
tls_per_s     frames per second through TLS, to a server of its own, in turns with the other one
tls_ratio     of those to the frames per second without

Then round trips of single frames, as far as *Ray* is installed beside an actor's that gives back what it gets:

memory_ms     to a server of this machine, through memory that both share
wire_ms       to one at this machine's address in the network, through TCP
ray_ms        to an actor of Ray
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from report import Row, median, parser, report

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.core.remote_address import parse
from pipeline.remote.connection import Connection
from pipeline.remote.credentials import create_credentials
from pipeline.remote.zenoh_members import network_address
from pipeline.scheduler import Pipeline

Echo = Callable[[np.ndarray], object]
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
        host = network_address()
        create_credentials(keys, (host,))
        plain = stack.enter_context(serve(host, "--insecure"))
        encrypted = f"{stack.enter_context(serve(host, '--tls', str(keys)))}?tls={keys / 'client'}"
        # All cases in turn, so that a disturbance meets all of them.
        samples = [
            [(measure(plain, *case, seconds), measure(encrypted, *case, seconds)) for case in cases]
            for _ in range(rounds)
        ]
        round_trips = measure_round_trips(host, 10 if options.quick else 60)
    rows = [row(*case, rates) for case, rates in zip(cases, zip(*samples, strict=True), strict=True)] + round_trips
    caption = "Both stages are simulated; medians."
    report("Two stages, one in another process", rows, caption, options.json)


@contextlib.contextmanager
def serve(host: str, *options: str) -> Iterator[str]:
    """Give the address of a new server."""
    line = [sys.executable, "-m", "pipeline.cli", "serve", "--host", host, "--port", "0", "--slots", "1", "--json"]
    root = Path(__file__).resolve().parent.parent
    child = subprocess.Popen([*line, *options], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with child:
        assert child.stdout is not None
        try:
            yield f"remote://{host}:{json.loads(child.stdout.readline())['port']}/simulated"
        finally:
            child.terminate()


def measure_round_trips(host: str, rounds: int) -> list[Row]:
    """Return the milliseconds of single frames there and back, each side in turns."""
    with contextlib.ExitStack() as stack:
        near, far = stack.enter_context(serve("127.0.0.1")), stack.enter_context(serve(host, "--insecure"))
        sides: dict[str, Echo] = {"memory_ms": ServerEcho(near), "wire_ms": ServerEcho(far)}
        if importlib.util.find_spec("ray"):
            sides["ray_ms"] = stack.enter_context(ray_echo())
        rows: list[Row] = []
        for nbytes in (1_000, 100_000, 1_000_000, 10_000_000):
            array = np.ones(nbytes, np.uint8)
            times: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, echo in sides.items():
                    # The first of two finds the caches and the threads as the side before left them.
                    echo(array)
                    begin = perf_counter()
                    echo(array)
                    times[name].append(1e3 * (perf_counter() - begin))
            rows.append({"tensor_bytes": nbytes, **{name: median(each) for name, each in times.items()}})
        return rows


class ServerEcho:
    """A frame to a server that computes nothing, and back."""

    def __init__(self, address: str) -> None:
        self._connection = Connection(parse(address.replace("simulated", "null")))
        self._programs: dict[int, tuple[int, StagePlan]] = {}

    def __call__(self, array: np.ndarray) -> None:
        """Send an array, and wait for it."""
        if array.nbytes not in self._programs:
            tensor = TensorSpec("x", array.shape, "uint8")
            stage = StagePlan("echo", "null", (tensor,), (tensor,))
            self._programs[array.nbytes] = self._connection.open(stage, None), stage
        self._connection.run(*self._programs[array.nbytes], [array])


@contextlib.contextmanager
def ray_echo() -> Iterator[Echo]:
    """Give an actor of Ray, on a node of this machine."""
    # In no requirements: only who compares needs it.
    ray: Any = importlib.import_module("ray")

    class Actor:
        def echo(self, array: np.ndarray) -> np.ndarray:
            return array

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        actor = ray.remote(Actor).remote()
        yield lambda array: ray.get(actor.echo.remote(array))
    finally:
        ray.shutdown()


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
