"""Whole: the unsplit model as it streams on a device, which is what measured groups are scaled to.

What the scheduler does between two frames counts, as it does in every stream: hardly any of its code is left in the
caches of a core that has just run a model, so that it takes a twentieth of a model of some milliseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

from pipeline.board import Board, Device
from pipeline.executor import cost_cache
from pipeline.executor.build import compile_stage
from pipeline.executor.bundle import Bundle
from pipeline.executor.code import StageCode
from pipeline.executor.cost_cache import CostCache, Record
from pipeline.executor.profile import MOST_OTHERS, TURNS, Times, fastest_cores
from pipeline.plans import Plan, StagePlan
from pipeline.profiling import pieces
from pipeline.sides import Frames, Run, random_frames
from pipeline.split.graph import Graph


class Whole:
    """The unsplit model on one device; built at once unless its time is known.

    Parameters
    ----------
    graph : Graph
    device : Device
        Cores of this machine that can run all of the model.
    cache : CostCache
        Where its time may be known from, and where it goes.
    progress : callable
        Told what is being done, unless the time is known.
    """

    def __init__(self, graph: Graph, device: Device, cache: CostCache, progress: Callable[[str], None]) -> None:
        self._cache, self._progress = cache, progress
        cores = fastest_cores(device, MOST_OTHERS + 1)
        ((group, module),) = pieces(graph, ())
        stage = replace(group, name="whole", device=device.name, cores=cores[-1:])
        where = {**cost_cache.place(device), "others": len(cores) - 1, "streams": True}
        self._key = cost_cache.key_of_group(where, stage, module, [False] * len(stage.inputs))
        self._known = cache.get(self._key)
        self._frames: Frames = []
        self._runs: list[tuple[int, Run]] = []
        if self._known is None:
            progress("building the whole model")
            self._frames = random_frames(graph.inputs, 2)
            self._runs = self._warm(graph, device, stage, compile_stage(module, device), cores)

    def time(self) -> Times:
        """Return the seconds of one frame: alone on one core, and while all of the device's fastest cores have frames.

        They are measured, each time anew, unless they were known.
        """
        if self._known is None or self._runs:
            self._progress("measuring the whole model")
            rounds = [[run.stream(self._frames) / replicas for replicas, run in self._runs] for _ in range(TURNS)]
            seconds, *crowded = (1 / statistics.median(rates) for rates in zip(*rounds, strict=True))
            self._known = Record(self._key, seconds, (), *crowded)
            self._cache.put(self._known)
        return Times.of([self._known])

    def _warm(
        self, graph: Graph, device: Device, stage: StagePlan, code: StageCode, cores: tuple[int, ...]
    ) -> list[tuple[int, Run]]:
        """Return what streams on one core, and on several if there are; each with the number of its replicas."""
        ways = [stage, replace(stage, cores=cores, replicas=len(cores))] if len(cores) > 1 else [stage]
        board, found = Board(device.name, (device,)), []
        for way in ways:
            plan = Plan(graph.name, graph.digest, board, graph.inputs, graph.outputs, (way,))
            run = Run(graph.name, Bundle(plan, [code]), lambda _: None)
            run.warm_up(self._frames, None)
            found.append((way.replicas, run))
        return found
