"""Unsplit baseline: the streaming unsplit model, to scale measured groups.

The scheduler's work between two frames counts, as it does in every stream: hardly any of its code is left in the caches
of a core that has just run a model, so that it takes a twentieth of a model of some milliseconds.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.bundle import Bundle
from pipeline.executor.executable import CompileOptions
from pipeline.executor.stage_code import StageCode
from pipeline.measure import cost_cache
from pipeline.measure.cost_cache import TimeRecord
from pipeline.measure.group_times import MOST_OTHERS, GroupTimes, extract_groups, fastest_cores
from pipeline.measure.sampling import MeasureOptions
from pipeline.measure.throughput import Frames, VariantRun
from pipeline.split.graph import Graph


class UnsplitBaseline:
    """Unsplit model on a device, built at once unless cached.

    The device has cores of this machine that can run all of the model; `code` is the model where a runtime of others
    runs it.
    """

    def __init__(self, graph: Graph, device: Device, options: MeasureOptions, *, code: StageCode | None = None) -> None:
        self._options = options
        # As many as groups are measured on, so that both meet the same contention.
        cores = fastest_cores(device, MOST_OTHERS + 1)
        ((group, module),) = extract_groups(graph, ())
        stage = replace(group, name="whole", device=device.name, cores=cores[-1:])
        # Apart from the time of the same group in a pass, in which the scheduler has no part.
        conditions = {"others": len(cores) - 1, "streams": True}
        if code is None:
            processor = {**cost_cache.describe_processor(device, numerics=options.numerics), **conditions}
            self._key = cost_cache.key_of_group(processor, stage, module, [False] * len(stage.inputs))
        else:
            self._key = cost_cache.key_of_span(device, code, **conditions)
        self._record = options.cache.get(self._key)
        self._frames: Frames = []
        self.runs: list[tuple[int, VariantRun]] = []
        """Streams on one core, and on several if there are, with their numbers of replicas.

        Empty if the time is cached.
        """
        if self._record is None:
            options.progress("building the whole model")
            code = code or compile_stage(module, device, options=CompileOptions(numerics=options.numerics))
            self.runs = self._warm_up(graph, device, stage, code, cores)

    def time(self) -> GroupTimes:
        """Return seconds per frame: on one core, and on all fastest cores.

        Each call measures them anew, unless they were cached.
        """
        if self._record is None or self.runs:
            self._options.progress("measuring the whole model")
            # The runs take turns, so that what disturbs the machine meets all of them.
            rounds = [
                # The rate of one core while all of them work.
                [run.stream(self._frames) / replicas for replicas, run in self.runs]
                for _ in range(self._options.sampling.turns)
            ]
            # On one core there is no second rate, and the record says so.
            isolated, *contended = (1 / statistics.median(rates) for rates in zip(*rounds, strict=True))
            self._record = TimeRecord(self._key, isolated, (), *contended)
            self._options.cache.put(self._record)
        return GroupTimes.of([self._record])

    def _warm_up(
        self, graph: Graph, device: Device, stage: StagePlan, code: StageCode, cores: tuple[int, ...]
    ) -> list[tuple[int, VariantRun]]:
        stages = [stage, replace(stage, cores=cores, replicas=len(cores))] if len(cores) > 1 else [stage]
        board, runs = Board(device.name, (device,)), []
        for variant in stages:
            plan = Plan(graph.name, graph.digest, board, graph.inputs, graph.outputs, (variant,))
            run = VariantRun(graph.name, Bundle(plan, [code]), lambda _: None)
            # Two in turns: a single one would still be in the caches when it comes again.
            if self._frames:
                run.warm_up(self._frames, None, self._options.sampling.stream_s)
            else:
                self._frames = run.find_inputs(2, None, self._options.sampling.stream_s)
            runs.append((variant.replicas, run))
        return runs
