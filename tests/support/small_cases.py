"""Small cases: graphs and boards of few parts, with all plans that there are, for what is compared with a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product

import numpy as np

from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.prediction.predict import Prediction, predict
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.planning.plan_builder import add_transfers
from pipeline.split.planning.problem.group_work import group_traffic


@dataclass(frozen=True)
class SmallCase:
    """A graph by what its groups read, of tensors of some bytes, a board, and each group's seconds on its devices.

    Attributes
    ----------
    reads : sequence of sequence of int
    nbytes : sequence of int
        Of the model's input, and of what each group makes.
    board : Board
    seconds : mapping of str to list of float
    parameter_bytes : sequence of int
    """

    reads: Sequence[Sequence[int]]
    nbytes: Sequence[int]
    board: Board
    seconds: Mapping[str, list[float]]
    parameter_bytes: Sequence[int] = ()

    @cached_property
    def graph(self) -> Graph:
        """The graph; the last group makes its output."""
        return self._graph(range(len(self.reads)))

    def _graph(self, order: Sequence[int]) -> Graph:
        count = len(self.reads)
        names = ["x", *(f"t{group}" for group in range(count))]
        tensors = {name: TensorSpec(name, (size,), "uint8") for name, size in zip(names, self.nbytes, strict=True)}
        weights = self.parameter_bytes or [0] * count
        operators = tuple(
            Operator(
                f"n{group}",
                "softmax",
                tuple(f"t{each}" for each in self.reads[group]) or ("x",),
                (f"t{group}",),
                1,
                weights[group],
                number,
            )
            for number, group in enumerate(order)
        )
        return Graph("graph", operators, tensors, (tensors["x"],), (tensors[names[-1]],))

    def plans(self, most_stages: int = 9) -> Iterator[tuple[Plan, Prediction]]:
        """Yield all plans with what they take, each group of stages in one order."""
        seen = set()
        for order in permutations(range(len(self.reads))):
            if any(order.index(each) > order.index(group) for group in order for each in self.reads[group]):
                continue
            for cuts in product((False, True), repeat=len(order) - 1):
                edges = [0, *(at + 1 for at, cut in enumerate(cuts) if cut), len(order)]
                sets = tuple(frozenset(order[begin:end]) for begin, end in pairwise(edges))
                if sets in seen or len(sets) > most_stages:
                    continue
                seen.add(sets)
                for ways in product(*([*self._ways()] for _ in sets)):
                    if (plan := self._plan(order, edges, ways)) is not None:
                        yield plan, predict(plan)

    def _ways(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Yield devices with threads, and replicas on each cluster."""
        for device in self.board.devices:
            clusters = [cluster.cores for cluster in device.clusters] or [device.cores]
            most = max(map(len, clusters))
            if not most:
                yield device.name, 0, ()
            for threads in range(1, most + 1):
                for counts in product(*(range(len(cores) // threads + 1) for cores in clusters)):
                    if any(counts):
                        yield device.name, threads, counts

    def _plan(
        self, order: Sequence[int], edges: Sequence[int], ways: Sequence[tuple[str, int, tuple[int, ...]]]
    ) -> Plan | None:
        """Return a plan, None if there are not as many cores or places."""
        free = {device.name: [list(each.cores) for each in device.clusters] for device in self.board.devices}
        free |= {device.name: [list(device.cores)] for device in self.board.devices if not device.clusters}
        graph, names = self._graph(order), [name for name, _, _ in ways]
        for device in self.board.devices:
            if not device.cores and names.count(device.name) > max(1, device.at_once):
                return None
        stages = []
        for number, ((begin, end), way) in enumerate(zip(pairwise(edges), ways, strict=True)):
            stage = self._stage(number, order, (begin, end), way, free)
            if stage is None:
                return None
            stages.append(stage)
        plan = Plan("graph", graph.digest, self.board, graph.inputs, graph.outputs, tuple(stages))
        return add_transfers(plan, group_traffic(graph), list(pairwise(edges)))

    def _stage(
        self,
        number: int,
        order: Sequence[int],
        span: tuple[int, int],
        way: tuple[str, int, tuple[int, ...]],
        free: Mapping[str, list[list[int]]],
    ) -> StagePlan | None:
        name, threads, counts = way
        device, groups, tensors = self.board.device(name), order[slice(*span)], self.graph.tensors
        if any(threads * count > len(cores) for count, cores in zip(counts, free[name], strict=False)):
            return None
        cores = [cores.pop(0) for count, cores in zip(counts, free[name], strict=False) for _ in range(threads * count)]
        total = sum(self.seconds[name][group] for group in groups)
        if threads > 1:
            total = total * 0.2 + total * 0.8 / threads + 1e-5 * len(groups)
        times = [total / device.speed(core) for core in cores[::threads]] if cores else [total]
        read = {f"t{each}" if self.reads[group] else "x" for group in groups for each in self.reads[group] or [0]}
        made = {f"t{group}" for group in groups}
        others = [group for group in range(len(self.reads)) if group not in groups]
        leaving = {f"t{each}" for group in others for each in self.reads[group]} | {f"t{len(self.reads) - 1}"}
        return StagePlan(
            f"stage{number}",
            name,
            tuple(tensors[each] for each in sorted(read - made)),
            tuple(tensors[each] for each in sorted(made & leaving)),
            (f"n{groups[0]}", f"n{groups[-1]}"),
            tuple(cores),
            times[0] if len(set(times)) == 1 else len(times) / sum(1 / each for each in times),
            replicas=len(times) if cores else (2 if device.overlaps else 1),
            replica_seconds=tuple(times) if len(set(times)) > 1 else (),
        )


def random_small_case(seed: int, count: int = 4) -> SmallCase:
    """Return branches or a chain with tensors that skip groups, on a CPU with an accelerator behind a link."""
    random = np.random.default_rng(seed)
    reads: list[list[int]] = [[]]
    for group in range(1, count - 1):
        reads.append(sorted({int(each) for each in random.integers(0, group, size=2)}))
    if seed % 4 == 3:
        # A chain, in which the solver's count is wrong only where workers wait, or memories are slow.
        reads = [[], *([group] for group in range(count - 2))]
    unread = set(range(count - 1)) - {each for group in reads for each in group}
    skips = set() if seed % 4 == 3 else {int(random.integers(0, count - 1))}
    reads.append(sorted(unread | skips))
    sizes = [int(size) for size in 10 ** random.uniform(3, 6, count + 1)]
    rate = float(random.choice([2e6, 1e7, 1e8]))
    memory_rate = float(random.choice([0.0, 1e7]))
    clusters = (Cluster("big", (0, 1)), Cluster("little", (2,), speed=0.4))
    watts = random.uniform(1, 5, 2)
    cpu = Device("cpu", clusters=clusters, bytes_per_s=3e7, watts_busy=float(watts[0]), memory_bytes_per_s=memory_rate)
    if random.random() < 0.5:
        cpu = replace(cpu, clusters=(), cores=(0, 1))
    npu = Device(
        "npu", "vta", at_once=int(random.integers(1, 3)), bytes_per_s=1e8, memory="npu", watts_busy=float(watts[1])
    )
    board = Board("board", (cpu, npu), (Link(("host", "npu"), rate, 1e-3),))
    return SmallCase(reads, sizes, board, {name: random.uniform(0.02, 0.3, count).tolist() for name in ("cpu", "npu")})
