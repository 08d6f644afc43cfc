"""Span timer: seconds of group runs on a runtime with whole-stage fusion."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import combinations

import numpy as np

from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BuildError
from pipeline.executor import devices
from pipeline.executor.stage_code import StageCode
from pipeline.export.stage_export import StageExport
from pipeline.measure import cost_cache
from pipeline.measure.cost_cache import TimeRecord
from pipeline.measure.group_times import GroupTimes, fastest_cores
from pipeline.measure.sampling import MeasureOptions
from pipeline.measure.unsplit_rate import UnsplitBaseline
from pipeline.split import extract
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.costs import estimate
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.system.threads import run_in_thread

MOST_POSITIONS = 12
"""Most positions of span borders. A span has to be built and timed for itself."""

WARM_UP = 2
"""Frames before timing: runtimes choose kernels and take memory by the first ones."""

LEAST_SHARE = 0.9
"""Least sum of the parts' times, as a share of the model's: what is cut is fused less."""

MOST_REPEATS = 2
"""Repetitions for spans below that share."""

SHARE = 0.2
"""Least share of a turn's seconds for one span; there are dozens of them."""


def time_spans(
    graph: Graph, device: Device, options: MeasureOptions, *, inner: bool, refused: Collection[int] = ()
) -> SpanTimes:
    """Time spans between cuts on one core, and the model on several.

    `inner` spans neither begin nor end with the model, as plans of three stages have; those in front of and behind
    `refused` groups are timed as well.
    """
    timer = _SpanTimer(graph, device, options)
    positions = _positions(graph, device, refused)
    last = len(positions) - 1
    seconds = np.full((last + 1, last + 1), np.inf)
    runnable = [group not in refused for group in range(positions[-1])]
    pairs = [
        (begin, end)
        for begin, end in combinations(range(last + 1), 2)
        if (inner or begin == 0 or end == last) and all(runnable[positions[begin] : positions[end]])
    ]
    for number, (begin, end) in enumerate(pairs):
        options.progress(f"measuring span {number + 1} of {len(pairs)} on {device.name}")
        seconds[end, begin] = timer.time(positions[begin], positions[end])
    _repeat_too_fast(seconds, positions, timer)
    return _with_scheduler(SpanTimes(positions, seconds), timer)


def find_too_fast(seconds: Array) -> list[tuple[int, int]]:
    """Return spans faster, with their surroundings, than the whole model."""
    # In front of the begin, and behind the end, there is nothing that takes time.
    preceding, following = np.append(0.0, seconds[1:, 0]), np.append(seconds[-1, :-1], 0.0)
    together = preceding[None, :] + seconds + following[:, None]
    ends, begins = np.nonzero(together < LEAST_SHARE * seconds[-1, 0])
    return [(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]


def _repeat_too_fast(seconds: Array, positions: Sequence[int], timer: _SpanTimer) -> None:
    """Retime implausibly fast spans, or the model: the machine was busy.

    Plans are made of the fastest spans, so that they would have just these.
    """
    for _ in range(MOST_REPEATS if np.isfinite(seconds[-1, 0]) else 0):
        # What the cache has was compared when it was timed.
        pairs = [pair for pair in find_too_fast(seconds) if timer.has_timed(*(positions[index] for index in pair))]
        if not pairs:
            return
        for begin, end in [(0, len(positions) - 1), *pairs]:
            timer.options.progress(f"measuring a span on {timer.device.name} again")
            seconds[end, begin] = timer.time(positions[begin], positions[end], again=True)


def _with_scheduler(spans: SpanTimes, timer: _SpanTimer) -> SpanTimes:
    """Scale the times to a stream's, on one and more cores."""
    model_s = float(spans.seconds[-1, 0])
    # Of a device beside the CPU, the frames of a stream would be measured with their copies, which a plan adds itself.
    if not np.isfinite(model_s) or not timer.device.cores:
        return spans
    last = spans.positions[-1]
    counts = [count for count in (1 << bit for bit in range(1, 10)) if count <= len(timer.device.cores)]
    shares = {count: timer.time(0, last, threads=count) / model_s for count in counts}
    (isolated,), (contended,) = timer.stream(last)
    # What the scheduler adds to a stage, in which the times of operators that are compiled have their share, too.
    overhead = max(0.0, isolated - model_s)
    return SpanTimes(spans.positions, spans.seconds + overhead, shares, max(1.0, contended / (model_s + overhead)))


def _positions(graph: Graph, device: Device, refused: Collection[int]) -> tuple[int, ...]:
    """Return balanced cut positions, each the cheapest nearby.

    Borders between what the device runs and what it does not are among the positions.
    """
    groups = len(graph.group_ends)
    if groups <= MOST_POSITIONS + 1:
        return tuple(range(groups + 1))
    work = np.where([group in refused for group in range(groups)], 0.0, estimate(graph, device))
    progress = np.cumsum(np.where(np.isfinite(work), work, 0.0))
    sections = np.floor(progress[:-1] / max(progress[-1], 1e-300) * (MOST_POSITIONS - 1e-9))
    crossing = np.array(crossing_bytes(graph))
    order = np.lexsort((crossing, sections))
    _, cheapest = np.unique(sections[order], return_index=True)
    runnable = np.array([group not in refused for group in range(groups)])
    changes = np.flatnonzero(runnable[1:] != runnable[:-1]) + 1
    return (0, *sorted({*(int(group) + 1 for group in order[cheapest]), *changes.tolist()}), groups)


class _SpanTimer:
    """Times spans of one graph on one device."""

    def __init__(self, graph: Graph, device: Device, options: MeasureOptions) -> None:
        self._graph, self.device, self.options = graph, device, options
        self._built: dict[tuple[int, int], tuple[StagePlan, StageCode | None]] = {}
        # On one core, by this timer.
        self._times: dict[tuple[int, int], list[float]] = {}

    def has_timed(self, begin: int, end: int) -> bool:
        """Test if a span was timed on one core, not cached."""
        return (begin, end) in self._times

    def time(self, begin: int, end: int, *, threads: int = 1, again: bool = False) -> float:
        """Return the seconds of groups ``[begin, end)``, infinite if unsupported.

        With `again` the groups are timed once more, whatever is known, and the median of all times counts.
        """
        stage, code = self._build(begin, end)
        if code is None:
            return float("inf")
        cores = fastest_cores(self.device, threads)
        key = cost_cache.key_of_span(self.device, code, threads=len(cores))
        if not again and (record := self.options.cache.get(key)) is not None:
            return record.seconds
        seconds = run_in_thread(lambda: self._run(stage, code, cores), "span")
        if threads == 1:
            times = self._times.setdefault((begin, end), [])
            times.append(seconds)
            seconds = statistics.median(times)
        self.options.cache.put(TimeRecord(key, seconds))
        return seconds

    def stream(self, groups: int) -> GroupTimes:
        """Return a stream's seconds per frame: on one core, and on all."""
        _, code = self._build(0, groups)
        return UnsplitBaseline(self._graph, self.device, self.options, code=code).time()

    def _build(self, begin: int, end: int) -> tuple[StagePlan, StageCode | None]:
        if (begin, end) not in self._built:
            part = extract.groups_part(self._graph, begin, end)
            stage = StagePlan("span", self.device.name, part.inputs, part.outputs)
            compiler = devices.compiler(self.device)
            try:
                code = compiler.compile_stage(StageExport(self._graph, part), self.device) if compiler else None
            except BuildError:
                code = None
            # One at a time: each has its weights.
            self._built = {(begin, end): (stage, code)}
        return self._built[begin, end]

    def _run(self, stage: StagePlan, code: StageCode, cores: Sequence[int]) -> float:
        """Return the median seconds of some frames."""
        with self._opened(stage, code, cores) as run:
            for _ in range(WARM_UP):
                run()
            times: list[float] = []
            sampling = self.options.sampling
            end = time.perf_counter() + SHARE * sampling.turn_s
            while len(times) < sampling.rounds or time.perf_counter() < end:
                begin = time.perf_counter()
                run()
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    @contextmanager
    def _opened(self, stage: StagePlan, code: StageCode, cores: Sequence[int]) -> Iterator[Callable[[], object]]:
        """Yield a function running a frame in the calling thread."""
        runtime = devices.create(self.device)
        with closing(runtime):
            runtime.open(cores)
            program = runtime.load(stage, code)
            frame = random_frame(stage.inputs, 0)
            tensors = [runtime.copy_in(frame[spec.name]) for spec in stage.inputs]
            yield lambda: [runtime.copy_out(tensor) for tensor in runtime.run(program, tensors)]
