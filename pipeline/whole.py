"""Whole: the unsplit model as it streams on a device, which is what measured groups are scaled to.

What the scheduler does between two frames counts, as it does in every stream: hardly any of its code is left in the
caches of a core that has just run a model, so that it takes a twentieth of a model of some milliseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline.board import Board, Device
from pipeline.executor import cost_cache
from pipeline.executor.build import compile_stage
from pipeline.executor.bundle import Bundle
from pipeline.executor.cost_cache import CostCache, Record
from pipeline.executor.profile import MOST_OTHERS, TURNS, Times, fastest_cores
from pipeline.plans import Plan, StagePlan
from pipeline.sides import Run, random_frames
from pipeline.split import extract
from pipeline.split.graph import Graph


def streamed(graph: Graph, device: Device, cache: CostCache, progress: Callable[[str], None]) -> Times:
    """Return the seconds of one frame: alone on one core, and while all of the device's fastest cores have frames.

    Parameters
    ----------
    graph : Graph
    device : Device
        Cores of this machine that can run all of the model.
    cache : CostCache
        Where it may be known from, and where it goes.
    progress : callable
        Told what is being done, unless it is known.
    """
    (part,) = extract.parts(graph, ())
    cores = fastest_cores(device, MOST_OTHERS + 1)
    stage = StagePlan("whole", device.name, part.inputs, part.outputs, cores=cores[-1:])
    module = extract.module(part)
    where = {**cost_cache.place(device), "others": len(cores) - 1, "streams": True}
    key = cost_cache.key_of_group(where, stage, module, [False] * len(stage.inputs))
    record = cache.get(key)
    if record is None:
        progress("building the whole model")
        code = compile_stage(module, device)
        progress("measuring the whole model")
        seconds, *crowded = _measured(graph, device, stage, code, cores)
        record = Record(key, seconds, (), *crowded)
        cache.put(record)
    return Times.of([record])


def _measured(graph: Graph, device: Device, stage: StagePlan, code: Any, cores: tuple[int, ...]) -> list[float]:
    """Return the seconds of one frame on one core, and those on several if there are."""
    ways = [stage, replace(stage, cores=cores, replicas=len(cores))] if len(cores) > 1 else [stage]
    board = Board(device.name, (device,))
    plans = [Plan(graph.name, graph.digest, board, graph.inputs, graph.outputs, (each,)) for each in ways]
    runs = [Run(graph.name, Bundle(plan, [code]), lambda _: None) for plan in plans]
    frames = random_frames(graph.inputs, 2)
    for run in runs:
        run.warm_up(frames, None)
    rounds = [[run.stream(frames) for run in runs] for _ in range(TURNS)]
    return [way.replicas / statistics.median(rates) for way, rates in zip(ways, zip(*rounds, strict=True), strict=True)]
