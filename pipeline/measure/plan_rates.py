"""Plan rates: frame rates of plans streamed in turns, cached or measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pipeline.core.plan.plan import encode
from pipeline.errors import BuildError, StageError

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.measure.cost_cache import CostCache
    from pipeline.measure.sampling import Sampling
    from pipeline.split.graph import Graph

StreamPlans = Callable[["Graph", Sequence["Plan"], "Sampling", Callable[[str], None]], Sequence[float]]


def stream_in_turns(
    graph: Graph, plans: Sequence[Plan], sampling: Sampling, progress: Callable[[str], None]
) -> list[float]:
    """Build and stream plans in turns; return frames per second, 0 on failure."""
    from pipeline.measure.comparison import build_unchecked
    from pipeline.measure.throughput import Frames, VariantRun, turns

    # Two in turns: a single one would still be in the caches when it comes again.
    frames: Frames = ()
    runs: dict[int, VariantRun] = {}
    for number, plan in enumerate(plans):
        progress(f"building plan {number + 1} of {len(plans)}")
        try:
            run = VariantRun(graph.name, build_unchecked(graph, plan), lambda _: None)
            if frames:
                run.warm_up(frames, None, sampling.stream_s)
            else:
                frames = run.find_inputs(2, None, sampling.stream_s)
        except (BuildError, StageError):
            # Whoever builds it is told; here others are left.
            continue
        runs[number] = run
    for turn, ordered_runs in enumerate(turns(list(runs.values()), sampling.turns), 1):
        progress(f"comparing plans, turn {turn} of {sampling.turns}")
        for run in ordered_runs:
            run.stream(frames)
    return [runs[number].result().frames_per_s if number in runs else 0.0 for number in range(len(plans))]


def find_rates(plans: Sequence[Plan], cache: CostCache, measure: Callable[[], Sequence[float]]) -> Sequence[float]:
    """Return the plans' frame rates, from cache or measured now."""
    from pipeline.measure.cost_cache import TimeRecord

    keys = _keys(plans)
    records = [record for key in keys if (record := cache.get(key)) is not None]
    # All or none, since only those that took turns can be compared.
    if len(records) == len(keys):
        return [1 / record.seconds if record.seconds else 0.0 for record in records]
    rates = measure()
    for key, rate in zip(keys, rates, strict=True):
        cache.put(TimeRecord(key, 1 / rate if rate else 0.0))
    return rates


def _keys(plans: Sequence[Plan]) -> list[str]:
    """Return a key per plan, of earlier measurements and competitors."""
    from pipeline.executor import host_target
    from pipeline.measure.cost_cache import kernels_digest

    digest = hashlib.sha256(b"".join(encode(plan) for plan in plans)).hexdigest()
    facts = {"finalists": digest, "processor": host_target.full_name(), "kernels": kernels_digest()}
    return [msgspec.json.encode({**facts, "number": number}).decode() for number in range(len(plans))]
