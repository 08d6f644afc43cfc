"""Snapshot: the statistics of a running engine at one moment."""

from __future__ import annotations

from time import perf_counter
from types import MappingProxyType

from pipeline.scheduler.engine import Engine
from pipeline.scheduler.flow import Flow
from pipeline.scheduler.statistics import StageStatistics, Statistics, summarise


def take(engine: Engine) -> Statistics:
    """Return the statistics; frames are counted under the ledger's lock, so that the books always add up."""
    ledger = engine.ledger
    with ledger.lock:
        flow, waiting = engine.flow, len(engine.entrance)
        submitted, delivered, failed, cancelled = ledger.submitted, ledger.delivered, ledger.failed, ledger.cancelled
        dropped = MappingProxyType(dict(ledger.dropped))
        first, last = ledger.first, ledger.last
    in_flight = submitted - delivered - failed - cancelled - sum(dropped.values())
    elapsed = ((perf_counter() if in_flight else last) - first) if first else 0.0
    return Statistics(
        submitted=submitted,
        delivered=delivered,
        failed=failed,
        cancelled=cancelled,
        dropped=dropped,
        in_flight=in_flight,
        elapsed_s=elapsed,
        frames_per_s=delivered / elapsed if elapsed else 0.0,
        latency_s=ledger.latency.percentiles(),
        stages=tuple(_stages(engine, flow, elapsed)),
        waiting=waiting,
    )


def _stages(engine: Engine, flow: Flow, elapsed: float) -> list[StageStatistics]:
    with engine.ledger.lock:
        counters = [engine.flows.counters(stage.name) for stage in flow.plan.stages]
    return [
        summarise(stage, counters[number], flow.queue_length(number), elapsed)
        for number, stage in enumerate(flow.plan.stages)
    ]
