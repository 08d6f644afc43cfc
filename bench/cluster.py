"""Replicas on a cluster of Ray: their rate, their overhead, and whether stages on different nodes pay.

The cluster has three nodes, each with its own daemon and object store, in processes of this machine; stages are
*simulated* (they sleep), so that replicas need no cores.  Needs the extra 'ray', and a quiet machine.

ratio          frames per second over those of one replica times their number, or over the ideal
near, far      milliseconds there and back of a frame that is not computed at all: on this node, and on another one
ray_near, far  the same of a plain actor of Ray, with the frame as argument and result
remote         the same of a stage on `soc-pipeline serve`
split_ratio    frames per second of two stages on two nodes, the tensor between them handed over by Ray, over those of
               two replicas of both stages: with as many nodes, and the same work
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import repeat
from time import perf_counter, sleep
from typing import Any

import numpy as np
from remote import serve
from report import Row, median, parser, report

from pipeline.cluster import ClusterPipeline, load
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline

FRAME_BYTES = 600_000
NEAR, FAR = "node:__internal_head__", "far"
"""Resources of this process's own node, and of others."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--many", type=int, default=100, metavar="N", help="replicas of 200 ms (default: 100)")
    chosen = options.parse_args()
    nodes = start_cluster()
    try:
        rounds = 3 if chosen.quick else 7
        rows = [measure_sharing(size, rounds) for size in (4_000, 100_000, FRAME_BYTES)]
        rows.append(measure_overhead(50 if chosen.quick else 200))
        rows += [measure_split(*case, rounds) for case in ((100_000, 10), (FRAME_BYTES, 10), (FRAME_BYTES, 50))]
        if not chosen.quick:
            rows.append(measure_many(chosen.many))
    finally:
        stop_cluster(nodes)
    report("Replicas on a cluster", rows, (__doc__ or "").rpartition("\n\n")[2], chosen.json)


def start_cluster() -> Any:
    """Join a cluster of three nodes."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=8, resources={FAR: 100})
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    return nodes


def stop_cluster(nodes: Any) -> None:
    """End it."""
    import ray

    ray.shutdown()
    nodes.shutdown()


def bundle(size: int, milliseconds: Sequence[float], kind: str = "simulated") -> Bundle:
    """Return stages that take so long, with tensors of so many bytes."""
    specs = [TensorSpec(f"t{number}", (size // 4,)) for number in range(len(milliseconds) + 1)]
    stages = [
        StagePlan(f"stage{number}", "there", (specs[number],), (specs[number + 1],), seconds=each / 1e3)
        for number, each in enumerate(milliseconds)
    ]
    board = Board("cluster", (Device("there", kind),))
    return Bundle(Plan("chain", "", board, (specs[0],), (specs[-1],), tuple(stages)), [None] * len(stages))


def open_replicas(count: int, code: Bundle, **options: Any) -> ClusterPipeline:
    """Return a pipeline, all of whose replicas are ready."""
    running = load(code, replicas=count, **options)
    while not all(each.is_ready for each in running.replicas):
        sleep(0.1)
    return running


def measure_rate(running: Pipeline, frames: int) -> float:
    """Return the frames per second, once replicas and their queues are busy."""
    array = np.zeros(running.plan.inputs[0].shape, np.float32)
    ends = [perf_counter() for _ in running.map(repeat(array, frames), copy=False)]
    skipped = len(ends) // 5
    return (len(ends) - 1 - skipped) / (ends[-1] - ends[skipped])


def measure_sharing(size: int, rounds: int) -> Row:
    """Return four replicas of 20 ms over one."""
    with open_replicas(1, bundle(size, [20])) as one, open_replicas(4, bundle(size, [20])) as four:
        rates = [(measure_rate(one, 50), measure_rate(four, 200)) for _ in range(rounds)]
    single, several = (median(each) for each in zip(*rates, strict=True))
    return {
        "what": "4 replicas of 20 ms",
        "frame_bytes": size,
        "frames_per_s": several,
        "ideal_frames_per_s": 200.0,
        "ratio": several / 4 / single,
    }


def measure_many(count: int) -> Row:
    """Return many replicas of 200 ms over the ideal."""
    with open_replicas(count, bundle(4_000, [200]), cpus=0.01) as running:
        # They come in waves of as many as there are replicas: a few of them would say little.
        rate = measure_rate(running, 50 * count)
    ideal = count * 5.0
    return {
        "what": f"{count} replicas of 200 ms",
        "frame_bytes": 4_000,
        "frames_per_s": rate,
        "ideal_frames_per_s": ideal,
        "ratio": rate / ideal,
    }


def measure_overhead(frames: int) -> Row:
    """Return the milliseconds of a frame there and back, one at a time, in turns."""
    array, code = np.zeros(FRAME_BYTES // 4, np.float32), bundle(FRAME_BYTES, [0], "null")
    with (
        open_replicas(1, code, resources={NEAR: 0.01}) as near,
        open_replicas(1, code, resources={FAR: 0.01}) as far,
        serve("127.0.0.1") as address,
        Pipeline(remote_plan(address.replace("simulated", "null"))) as remote,
    ):
        sides: dict[str, Callable[[], object]] = {
            "near_ms": lambda: near.submit(array, copy=False).result(),
            "ray_near_ms": plain_call(array, NEAR),
            "far_ms": lambda: far.submit(array, copy=False).result(),
            "ray_far_ms": plain_call(array, FAR),
            "remote_ms": lambda: remote.submit(array, copy=False).result(),
        }
        times = {name: [time_call(call) for _ in range(frames)] for name, call in sides.items()}
    medians = {name: 1e3 * median(values) for name, values in times.items()}
    return {"what": "there and back", "frame_bytes": FRAME_BYTES, **medians}


def remote_plan(address: str) -> Plan:
    """Return one stage on a server."""
    x, y = TensorSpec("x", (FRAME_BYTES // 4,)), TensorSpec("y", (FRAME_BYTES // 4,))
    board = Board("server", (Device("there", "remote", address=address, memory="there"),))
    return Plan("remote", "", board, (x,), (y,), (StagePlan("stage", "there", (x,), (y,)),))


class Echo:
    """What Ray does alone."""

    def run(self, array: np.ndarray, milliseconds: float = 0.0) -> np.ndarray:
        """Return the frame, after a while."""
        if milliseconds:
            sleep(milliseconds / 1e3)
        return array


def plain_actor(resource: str) -> Any:
    """Return an actor of Ray that takes frames one after the other."""
    import ray

    return ray.remote(Echo).options(num_cpus=0.01, resources={resource: 0.01}).remote()


def plain_call(array: np.ndarray, resource: str) -> Callable[[], object]:
    """Return what sends a frame to a plain actor and waits for it."""
    import ray

    actor = plain_actor(resource)
    ray.get(actor.run.remote(array))
    return lambda: ray.get(actor.run.remote(array))


def time_call(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = perf_counter()
    call()
    return perf_counter() - begin


def measure_split(size: int, stage_ms: float, rounds: int) -> Row:
    """Return two stages on two nodes over two replicas of both."""
    actors = [plain_actor(NEAR), plain_actor(FAR)]
    with open_replicas(2, bundle(size, [2 * stage_ms])) as replicas:
        rates = [(measure_chain(actors, size, stage_ms, 60), measure_rate(replicas, 60)) for _ in range(rounds)]
    split, whole = (median(each) for each in zip(*rates, strict=True))
    return {
        "what": f"two stages of {stage_ms} ms",
        "frame_bytes": size,
        "frames_per_s": whole,
        "ideal_frames_per_s": 1e3 / stage_ms,
        "split_frames_per_s": split,
        "split_ratio": split / whole,
    }


def measure_chain(actors: Sequence[Any], size: int, stage_ms: float, frames: int) -> float:
    """Return the frames per second through actors, whose tensors go from one to the next one."""
    import ray

    array, pending, ends = np.zeros(size // 4, np.float32), [], []
    for _ in range(frames):
        tensor: Any = array
        for actor in actors:
            tensor = actor.run.remote(tensor, stage_ms)
        pending.append(tensor)
        if len(pending) > 2 * len(actors):
            ray.get(pending.pop(0))
            ends.append(perf_counter())
    for tensor in pending:
        ray.get(tensor)
        ends.append(perf_counter())
    skipped = frames // 5
    return (len(ends) - 1 - skipped) / (ends[-1] - ends[skipped])


if __name__ == "__main__":
    main()
