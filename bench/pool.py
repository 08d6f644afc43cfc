"""Pools of servers: what the loss of a member costs, and what the slots of one server are worth.

Every server is one of this project's, in a process of its own, on loopback; its stage is *simulated* (it sleeps), so
that four slots need no cores.  In the middle of a stream one of four is killed, stopped or terminated; later it is
back.

failed        frames that were lost, of all
away_ratio    frames per second while the member is away, over those before; three of four are 0.75
back_ratio    and when it is back
slots_ratio   frames per second of one server with four slots, over those of four servers with one slot
plan_ratio    frames per second of a planned pipeline on such servers and a device here, over those of the prediction;
              the planner asked the servers for their slots
bundle_ratio  frames per second of a pool of servers that each run a whole pipeline of three stages, over the ideal
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from remote import serve
from report import Row, median, parser, report

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.prediction.predict import predict
from pipeline.scheduler import Pipeline
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.workflow.load import load
from pipeline.workflow.plan import make_planner

STAGE_MS, SERVERS = 10, 4
FRAMES, LOST, BACK = 3000, 800, 2200
"""Of one stream, and the frames at which the member goes and comes back."""

SIGNALS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "stopped": signal.SIGSTOP}
SERVER = """
import sys
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore

port, slots = map(int, sys.argv[1:])
server = Server("127.0.0.1", port, Offer(FileStore(), ServerDevices((), slots=slots), ()))
print(server.port, flush=True)
server.serve()
"""
"""What ``soc-pipeline serve`` does, but with slots without cores."""

ELEMENTS = 25_000
"""Of a tensor of 100 kB."""


class ServerProcess:
    """A server that can be disturbed, and be back at the same port."""

    def __init__(self, slots: int) -> None:
        self._slots, self.port = slots, 0
        self.start()

    def start(self) -> None:
        """Start it, or go on."""
        line = [sys.executable, "-c", SERVER, str(self.port), str(self._slots)]
        root = Path(__file__).resolve().parent.parent
        self.process = subprocess.Popen(line, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def disturb(self, title: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, title)

    def restore(self, title: signal.Signals) -> None:
        """Undo what a signal has done."""
        if title == signal.SIGSTOP:
            os.kill(self.process.pid, signal.SIGCONT)
        else:
            self.end()
            self.start()

    def end(self) -> None:
        """Kill it."""
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"remote://127.0.0.1:{self.port}/simulated?timeout=0.3"


def main() -> None:
    options = parser(__doc__).parse_args()
    scale = 0.25 if options.quick else 1.0
    rows = [measure_loss(title, scale) for title in SIGNALS]
    rows.append(measure_slots(3 if options.quick else 7))
    rows += [measure_plan((SERVERS,)), measure_plan((1,) * SERVERS)]
    rows.append(measure_bundles())
    report("Pools of servers", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


@contextlib.contextmanager
def servers(*slots: int) -> Iterator[list[ServerProcess]]:
    """Give servers with so many slots each."""
    processes: list[ServerProcess] = []
    try:
        processes.extend(ServerProcess(count) for count in slots)
        yield processes
    finally:
        for process in processes:
            process.end()


def measure_loss(title: str, scale: float) -> Row:
    """Return what becomes of a stream whose server is disturbed."""
    lost, back, count = (int(number * scale) for number in (LOST, BACK, FRAMES))
    ends: list[float] = []
    with servers(*[1] * SERVERS) as members, Pipeline(plan(members)) as running:
        array = np.zeros(ELEMENTS, np.float32)
        futures = []
        for number in range(count):
            if number == lost:
                members[0].disturb(SIGNALS[title])
            if number == back:
                members[0].restore(SIGNALS[title])
            future = running.submit(array, copy=False)
            future.add_done_callback(lambda _: ends.append(perf_counter()))
            futures.append(future)
        failed = sum(future.exception() is not None for future in futures)
    before = rate(ends[: lost - 20])
    return {
        "member": title,
        "failed": failed,
        "frames": count,
        "before_frames_per_s": before,
        "away_ratio": rate(ends[lost:back]) / before,
        # It has to start, and to be found.
        "back_ratio": rate(ends[(back + count) // 2 :]) / before,
        "ideal_frames_per_s": SERVERS * 1e3 / STAGE_MS,
    }


def measure_slots(rounds: int) -> Row:
    """Return one server with four slots over four servers with one."""
    with servers(*[1] * SERVERS) as four, servers(SERVERS) as one:
        sides = [Pipeline(plan(four)), Pipeline(plan(one))]
        samples = [[measure_rate(side) for side in sides] for _ in range(rounds)]
        for side in sides:
            side.close()
    single, several = (median(rates) for rates in zip(*samples, strict=True))
    return {"member": "one of four slots", "before_frames_per_s": several, "slots_ratio": several / single}


def measure_plan(slots: Sequence[int]) -> Row:
    """Return the rate of a plan for servers of so many slots and one device here, beside what is predicted."""
    with servers(*slots) as members:
        address = ",".join(member.address for member in members)
        far = Device(
            "far", "remote", memory="there", address=address if len(slots) == 1 else f"pool:{address}", flops=1e9
        )
        board = Board("servers", (Device("here", "simulated", flops=1e9), far), (Link(("host", "there"), 1e9, 2e-4),))
        divided = make_planner(chain_graph(), board).plan()
        # The server sleeps for what the stage computes; its tensors travel indeed.
        stages = [replace(stage, seconds=stage.seconds - stage.transfer_s, transfer_s=0.0) for stage in divided.stages]
        with Pipeline(replace(divided, stages=tuple(stages))) as running:
            rate = median([measure_rate(running) for _ in range(3)])
    return {
        "member": f"planned for {len(slots)} of {slots[0]} slots",
        "before_frames_per_s": rate,
        "plan_ratio": rate * predict(divided).interval_s,
        "ideal_frames_per_s": predict(divided).frames_per_s,
    }


def measure_bundles(count: int = 2) -> Row:
    """Return the rate of a pool whose members run a whole bundle each."""
    tensors = tuple(TensorSpec(f"t{number}", (ELEMENTS,)) for number in range(4))
    stages = tuple(
        StagePlan(
            f"stage{number}", "here", tensors[number : number + 1], tensors[number + 1 : number + 2], (), (), 0.01
        )
        for number in range(3)
    )
    board = Board("three", (Device("here", "simulated"),))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        bundle = Path(name) / "three.bundle"
        Bundle(Plan("three", "", board, (tensors[0],), (tensors[-1],), stages), [None] * 3).save(bundle)
        members = [stack.enter_context(serve("127.0.0.1", "--run", str(bundle))) for _ in range(count)]
        address = ",".join(member.replace("/simulated", "/bundle") for member in members)
        with load(bundle, server=f"pool:{address}") as running:
            rate = median([measure_rate(running) for _ in range(3)])
    ideal = count * 1e3 / STAGE_MS
    return {
        "member": f"{count} whole bundles",
        "before_frames_per_s": rate,
        "bundle_ratio": rate / ideal,
        "ideal_frames_per_s": ideal,
    }


def chain_graph(operators: int = 20) -> Graph:
    """Return a chain of operators of 2 ms each."""
    specs = {f"t{number}": TensorSpec(f"t{number}", (ELEMENTS,)) for number in range(operators + 1)}
    chain = tuple(
        Operator(f"n{number}", "softmax", (f"t{number}",), (f"t{number + 1}",), 2_000_000, 0, number)
        for number in range(operators)
    )
    return Graph("chain", chain, specs, (specs["t0"],), (specs[f"t{operators}"],))


def measure_rate(running: Pipeline) -> float:
    """Return the frames per second of some frames."""
    array = np.zeros(ELEMENTS, np.float32)
    ends = [perf_counter() for _ in running.map([array] * 300, copy=False)]
    sleep(0.1)
    return rate(ends[20:])


def plan(members: Sequence[ServerProcess]) -> Plan:
    """Return one stage on all members."""
    x, y = TensorSpec("x", (ELEMENTS,)), TensorSpec("y", (ELEMENTS,))
    address = "pool:" + ",".join(member.address for member in members)
    board = Board("pool", (Device("pool", "remote", address=address, memory="there"),))
    # Two replicas for each slot: one's frame is on its way while another one's is computed.
    replicas = 2 * SERVERS
    stage = StagePlan("stage", "pool", (x,), (y,), seconds=STAGE_MS / 1e3, replicas=replicas, queue_depth=4)
    return Plan("pool", "", board, (x,), (y,), (stage,))


def rate(ends: Sequence[float]) -> float:
    """Return the frames per second of frames that ended at these times."""
    return (len(ends) - 1) / (ends[-1] - ends[0])


if __name__ == "__main__":
    main()
