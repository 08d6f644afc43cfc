"""Outlook: what is idle under a plan, and what other builds and inputs would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import Prediction
from pipeline.split import offload
from pipeline.split.planning.advice.advice import fastest_interval
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.costs import narrow_rate, rates
from pipeline.split.planning.problem.group_work import GroupWork, WorkTable, group_works, with_works
from pipeline.split.planning.problem.problem import Problem

LEAST_REST = 0.1
"""Least share of its time for which a stage is said to rest."""

_IMAGE = 16
"""Least extents of an input that may be halved."""


@dataclass(frozen=True)
class Change:
    """A change of model, build or runtime, with the rate of the fastest division over that without it."""

    name: str
    gain: float


def traffic_share(planner: Planner, device_name: str, begin: int, end: int) -> float:
    """Return the share of traffic to memory in the estimated seconds of groups, 0 to 1."""
    device, works = planner.board.device(device_name), group_works(planner.graph)[begin:end]
    efficiency = np.array([device.family_efficiency.get(work.family, 1.0) for work in works])
    arithmetic_s, traffic_s = rates(WorkTable.of(works), device, planner.options)
    total = float((arithmetic_s / efficiency + traffic_s).sum())
    return float(traffic_s.sum()) / total if total else 0.0


def idle(plan: Plan, prediction: Prediction) -> Iterator[str]:
    """Yield unused devices and cores, and stages that rest."""
    used = {name for unit in plan.units for name in (unit.device, *unit.replica_devices)}
    busy = {core for stage in plan.stages for core in stage.cores}
    for device in plan.board.devices:
        resting = ",".join(str(core) for core in device.cores if core not in busy)
        if not any(map(device.is_called, used)):
            yield device.name
        elif resting:
            yield f"core{'s' if ',' in resting else ''} {resting} of {device.name}"
    for stage, title, part in zip(plan.stages, plan.titles, prediction.stages, strict=True):
        rest = 1 - part.interval_s / prediction.interval_s if prediction.interval_s else 0.0
        if rest >= LEAST_REST:
            yield f"{stage.name} ({title}) {rest:.0%} of the time"


def changes(planner: Planner) -> Iterator[Change]:
    """Yield the gains of another precision, runtime or size of input, the largest first."""
    estimated = replace(planner, isolated=None, contended={}, spans={}, estimates={})
    base_s = fastest_interval(estimated.problem())
    scenarios = [] if any(map(offload.applies, planner.board.devices)) else _other_works(estimated)
    alternatives = [*_other_builds(estimated), *scenarios]
    results = [Change(name, base_s / fastest_interval(problem)) for name, problem in alternatives]
    results += _other_runtimes(planner)
    # Nothing is said of what cannot run, with the change or without.
    yield from sorted((change for change in results if 0 < change.gain < np.inf), key=lambda change: -change.gain)


def _other_builds(planner: Planner) -> Iterator[tuple[str, Problem]]:
    """Yield options of the build that the board's processors and the model's operators have a use for."""
    processors = [device for device in planner.board.devices if device.capabilities.is_processor]
    works = [work for work in group_works(planner.graph) if not work.reads_bytes]
    for precision in ("bfloat16", "float16") if works and planner.options.precision is None else ():
        if any(narrow_rate(device, precision) for device in processors):
            options = replace(planner.options, precision=precision)
            yield f"--precision {precision}", replace(planner, options=options).problem()


def _other_works(planner: Planner) -> Iterator[tuple[str, Problem]]:
    """Yield the model in int8, and with an input of half its size."""
    works = group_works(planner.graph)
    if sum(work.float_share * work.traffic for work in works) * 2 > sum(work.traffic for work in works):
        yield "int8", _with_works(planner, [_quantise(work) for work in works], 1 / 4)
    if any(len(spec.shape) == 4 and sorted(spec.shape)[-2] >= _IMAGE for spec in planner.graph.inputs):
        yield "half the input's size", _with_works(planner, list(map(_halve, works)), 1 / 4)


def _with_works(planner: Planner, works: Sequence[GroupWork], moved: float) -> Problem:
    problem = replace(planner, graph=with_works(planner.graph, works)).problem()
    # Tensors between stages have as many bytes less.
    return replace(problem, enter=problem.enter * moved, leave=problem.leave * moved)


def _quantise(work: GroupWork) -> GroupWork:
    share = 1 - work.float_share * 3 / 4
    work = replace(work, traffic=round(work.traffic * share), parameters=round(work.parameters * share))
    return replace(work, reads_bytes=True, float_share=0.0, dtypes=frozenset({"int8"}))


def _halve(work: GroupWork) -> GroupWork:
    # Products of matrices are those of classifiers, behind a mean over the picture.
    scale = 1.0 if work.family == "matmul" else 1 / 4
    amounts = {name: round(getattr(work, name) * scale) for name in ("flops", "results", "winograd_flops")}
    return replace(work, traffic=round(work.parameters + (work.traffic - work.parameters) * scale), **amounts)


def _other_runtimes(planner: Planner) -> Iterator[Change]:
    """Yield each measured runtime by itself, where there are several."""
    names = list(dict.fromkeys(name for device in planner.board.devices for name in device.runtimes))
    if planner.spans and planner.measured and len(names) > 1:
        base_s = fastest_interval(planner.problem())
        for name in names:
            seconds = fastest_interval(replace(planner, board=planner.board.with_runtimes([name])).problem())
            yield Change(f"{name} alone, as measured,", base_s / seconds)
