"""The planner against an oracle at the level of boards: docs/planning.md, counted anew for every plan of a chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.planning.plan_builder import build_plan
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.solver.solver import Solver
from tests.support.onnx_models import node, save

HOP_S = 50e-6
WIDTHS = (400, 900, 100, 600, 200)
GROUPS = len(WIDTHS) - 1
# Bytes at each position, and what each group reads and writes, its parameters included.
CROSSING = [30 * width * 4 for width in WIDTHS]
TRAFFIC = [CROSSING[g] + CROSSING[g + 1] + WIDTHS[g] * WIDTHS[g + 1] * 4 for g in range(GROUPS)]


class Way(NamedTuple):
    """How a stage runs: its device, and on the CPU each replica's threads, and replicas on big and little cores."""

    device: str
    threads: int = 1
    big: int = 0
    little: int = 0


class Times(NamedTuple):
    """What a plan takes."""

    interval: float
    latency: float
    joules: float


class Case(NamedTuple):
    """A board, and the seconds of each group on one core of its CPU, and on the other devices."""

    board: Board
    seconds: dict[str, list[float]]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A chain of products by matrices of different widths."""
    nodes = [node("MatMul", f"t{number} w{number}", f"t{number + 1}", f"n{number}") for number in range(GROUPS)]
    constants = {f"w{number}": np.zeros(WIDTHS[number : number + 2], np.float32) for number in range(GROUPS)}
    path = tmp_path_factory.mktemp("oracle") / "m.onnx"
    return pipeline.read(save(path, nodes, {"t0": (30, WIDTHS[0])}, [f"t{GROUPS}"], constants))


def random_case(seed: int) -> Case:
    """Return a board with unlike cores, a GPU that overlaps, and an NPU; stages may take turns on both."""
    random = np.random.default_rng(seed)
    big, little = int(random.integers(1, 3)), int(random.integers(0, 3))
    clusters = (
        Cluster("big", tuple(range(big))),
        *([Cluster("little", tuple(range(big, big + little)), random.uniform(0.3, 0.8))] if little else []),
    )
    bandwidth = float(random.choice([0.0, 3e8, 2e9]))
    watts = [float(1 + random.uniform(0.5, 8)) for _ in range(3)]
    devices = (
        Device(
            "cpu", clusters=clusters, bytes_per_s=1e9, memory_bytes_per_s=bandwidth, watts_idle=1.0, watts_busy=watts[0]
        ),
        Device(
            "gpu",
            "cuda",
            memory="gpu",
            at_once=int(random.integers(1, 4)),
            bytes_per_s=4e9,
            watts_idle=1.0,
            watts_busy=watts[1],
        ),
        Device(
            "npu",
            "vta",
            memory="npu",
            at_once=int(random.integers(1, 4)),
            bytes_per_s=4e9,
            watts_idle=1.0,
            watts_busy=watts[2],
        ),
    )
    links = tuple(Link(("host", name), float(random.choice([5e7, 1e9])), 1e-4) for name in ("gpu", "npu"))
    base = random.exponential(4e-3, GROUPS)
    seconds = {"cpu": base, **{name: base * random.uniform(0.1, 1, GROUPS) for name in ("gpu", "npu")}}
    seconds["npu"][random.random(GROUPS) < 0.2] = np.inf
    return Case(Board("random", devices, links), {name: values.tolist() for name, values in seconds.items()})


def ways(board: Board) -> list[Way]:
    """Return all ways to run a stage."""
    big, little = cluster_sizes(board)
    on_cores = [
        Way("cpu", threads, *copies)
        for threads in range(1, max(big, little) + 1)
        for copies in product(range(big // threads + 1), range(little // threads + 1))
        if any(copies)
    ]
    return [*on_cores, Way("gpu"), Way("npu")]


def cluster_sizes(board: Board) -> tuple[int, int]:
    big, *rest = (len(cluster.cores) for cluster in board.device("cpu").clusters)
    return big, sum(rest)


def plans(case: Case) -> Iterator[Times]:
    """Yield what every plan takes for which there are cores and places."""
    candidates, sizes = ways(case.board), cluster_sizes(case.board)
    places = {name: case.board.device(name).at_once for name in ("gpu", "npu")}
    for count in range(1, GROUPS + 1):
        for cuts, chosen in product(combinations(range(1, GROUPS), count - 1), product(candidates, repeat=count)):
            used = (sum(way.threads * way.big for way in chosen), sum(way.threads * way.little for way in chosen))
            if any(taken > size for taken, size in zip(used, sizes, strict=True)):
                continue
            if all(sum(way.device == name for way in chosen) <= limit for name, limit in places.items()):
                times = measure(case, (0, *cuts, GROUPS), chosen)
                if np.isfinite(times.interval):
                    yield times


def measure(case: Case, edges: tuple[int, ...], chosen: tuple[Way, ...]) -> Times:
    """Return what a plan takes, by the words of the documentation."""
    loads = dict.fromkeys(("gpu", "npu", "link gpu", "link npu", "memory"), 0.0)
    names = ["caller", *(way.device for way in chosen), "caller"]
    intervals, latency, joules = [], 0.0, 0.0
    for number, way in enumerate(chosen):
        begin, end = edges[number], edges[number + 1]
        (fetch, bring), (lay, hand) = moves(case.board, names[number : number + 3], CROSSING[begin], CROSSING[end])
        transfer = fetch + bring + lay + hand
        computes = replica_seconds(case, way, begin, end)
        if not np.isfinite(computes).all():
            return Times(np.inf, np.inf, np.inf)
        rate, hopping = (sum(1 / (compute + transfer + hop_s) for compute in computes) for hop_s in (0.0, HOP_S))
        latency += max(computes) + transfer + HOP_S
        if way.device == "cpu":
            intervals.append(1 / hopping)
            loads["memory"] += sum(TRAFFIC[begin:end])
        else:
            # Two frames at a time on a GPU: one moves while the other is computed.
            overlapped_s = max(computes[0], (computes[0] + transfer + HOP_S) / 2)
            intervals.append(overlapped_s if way.device == "gpu" else 1 / hopping)
            loads[way.device] += computes[0] + fetch + lay
            loads[f"link {way.device}"] += bring + hand
        joules += power(case.board, way) / rate
    return Times(max(*intervals, *shared(case.board, loads)), latency, joules)


def shared(board: Board, loads: dict[str, float]) -> list[float]:
    """Return the seconds per frame of what stages share."""
    bandwidth = board.device("cpu").memory_bytes_per_s
    turns = [loads["gpu"], loads["npu"] if board.device("npu").at_once > 1 else 0.0]
    memory = loads["memory"] / bandwidth if bandwidth else 0.0
    return [*turns, loads["link gpu"], loads["link npu"], memory]


def replica_seconds(case: Case, way: Way, begin: int, end: int) -> list[float]:
    """Return what each replica computes."""
    seconds = case.seconds[way.device][begin:end]
    if way.threads > 1:
        seconds = [second * (0.2 + 0.8 / way.threads) + 1e-5 for second in seconds]
    if way.device != "cpu":
        return [sum(seconds)]
    speeds = [cluster.speed for cluster in case.board.device("cpu").clusters]
    return [sum(seconds) / speed for speed, copies in zip(speeds, way[2:], strict=False) for _ in range(copies)]


def moves(board: Board, names: list[str], in_bytes: int, out_bytes: int) -> tuple[tuple[float, float], ...]:
    """Return for a stage between two neighbours what it fetches in place and what it copies, in and out."""
    source, name, target = names
    rate = board.device(name).bytes_per_s
    if name == "cpu":
        # The caller's tensors are used as they are; those of other memories are copied by the other side.
        fetch = 4 * in_bytes / rate if source == "cpu" else 0.0
        return (fetch, 0.0), (3 * out_bytes / rate if target == "cpu" else 0.0, 0.0)
    link = board.link("host", name)
    assert link is not None
    bring = 0.0 if source == name else link.latency_s + in_bytes / link.bytes_per_s
    hand = 0.0 if target == name else link.latency_s + out_bytes / link.bytes_per_s
    return (in_bytes / rate if source == name else 0.0, bring), (0.0, hand)


def power(board: Board, way: Way) -> float:
    """Return the watts above rest of all replicas together."""
    device = board.device(way.device)
    watts = device.watts_busy - device.watts_idle
    if way.device != "cpu":
        return watts
    speeds = [cluster.speed for cluster in device.clusters]
    total = sum(cluster.speed * len(cluster.cores) for cluster in device.clusters)
    return watts * way.threads * sum(speed * copies for speed, copies in zip(speeds, way[2:], strict=False)) / total


def compare(graph: Graph, case: Case) -> None:
    """Compare what the planner finds and predicts with the best of all plans."""
    planner = Planner(graph, case.board, case.seconds)
    everything = list(plans(case))
    solver = Solver(planner.problem())
    fastest = solver.fastest()
    assert fastest is not None
    least = min(times.interval for times in everything)
    assert least * (1 - 1e-9) <= fastest.interval <= least * 1.01
    assert fastest.bound <= least * (1 + 1e-9)
    for slack, (goal, value) in product((1.0, 1.3, np.inf), (("latency", "latency"), ("energy", "joules"))):
        limit = fastest.interval * slack
        solution = solver.least(goal, limit)
        assert solution is not None
        best = min(getattr(times, value) for times in everything if times.interval <= limit * (1 + 1e-9))
        assert best * (1 - 1e-9) <= getattr(solution, value) <= best * 1.01, (goal, slack)
        plan = build_plan(solution, graph, case.board, measured=True)
        prediction = predict(plan)
        # Workers that need devices and links in turn also wait for each other, which no sum of times tells.
        if all(stage.choice.processor < 2 for stage in solution.stages) and len(case.board.devices[0].clusters) == 2:
            assert prediction.interval_s == pytest.approx(solution.interval)
        assert prediction.interval_s >= solution.interval * (1 - 1e-9)
        # A run takes no less than its bytes, which the search leaves to the prediction.
        assert prediction.latency_s >= solution.latency * (1 - 1e-9)
        assert predict(without_memory_rates(plan)).latency_s == pytest.approx(solution.latency)
        assert prediction.joules == pytest.approx(solution.joules)


def without_memory_rates(plan: Plan) -> Plan:
    devices = tuple(replace(device, memory_bytes_per_s=0.0) for device in plan.board.devices)
    return replace(plan, board=replace(plan.board, devices=devices))


@pytest.mark.parametrize("seed", range(5))
def test_no_plan_is_better(graph: Graph, seed: int) -> None:
    compare(graph, random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 150))
def test_no_plan_for_many_boards_is_better(graph: Graph, seed: int) -> None:
    compare(graph, random_case(seed))
