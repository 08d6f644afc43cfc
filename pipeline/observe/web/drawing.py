"""Drawing: plan, events and durations as plain values for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.scheduler.trace import Trace, TraceEvent

FRAMES = 12
"""Newest frames on the timeline."""

# Of the histogram: about as many as can be told apart on a phone.
BARS = 40
_EVENTS = 6
"""Events per frame and stage: a wait, two copies and a run, with some to spare for frames that overtake."""


def edges(plan: Plan) -> list[dict[str, Any]]:
    """Return the tensors between stage positions; -1 and the count mean the caller."""
    makers = {spec.name: -1 for spec in plan.inputs}
    sizes: dict[tuple[int, int], list[Any]] = {}
    for number, stage in enumerate(plan.stages):
        for spec in stage.inputs:
            sizes.setdefault((makers[spec.name], number), []).append(spec)
        makers |= {spec.name: number for spec in stage.outputs}
    for spec in plan.outputs:
        sizes.setdefault((makers[spec.name], len(plan.stages)), []).append(spec)
    return [
        {"from": start, "to": end, "tensors": [str(spec) for spec in specs], "bytes": sum(s.nbytes for s in specs)}
        for (start, end), specs in sizes.items()
    ]


def timeline(trace: Trace, plan: Plan) -> dict[str, Any]:
    """Return the newest frames' events, in milliseconds since their first stage.

    ``rows`` has a name for each worker; ``events`` row, frame, kind, start and duration of each; ``span`` them all.
    """
    rows = [(stage.name, replica) for stage in plan.stages for replica in range(stage.replicas)]
    # Only the newest ones are looked at: the trace may hold thousands, and workers wait meanwhile.
    events = _last_frames(trace.newest(_EVENTS * FRAMES * len(rows)))
    row_numbers = {row: number for number, row in enumerate(rows)}
    # After a swap the trace still has events of stages that are gone.
    visible_events = [event for event in events if (event.stage, event.replica) in row_numbers]
    # The waits before would fill half the picture where the queues are long.
    origin = min((event.start for event in visible_events if event.kind != "queue"), default=0.0)
    # People count replicas from 1, and a single one not at all.
    names = [f"{stage} {replica + 1}" if (stage, 1) in row_numbers else stage for stage, replica in rows]
    return {
        "rows": names,
        "span": _milliseconds(max((event.end for event in visible_events), default=0.0) - origin),
        "events": [
            _bar(row_numbers[event.stage, event.replica], event, origin)
            for event in visible_events
            if event.end > origin
        ],
    }


def _last_frames(events: Sequence[TraceEvent]) -> list[TraceEvent]:
    newest = set(sorted({event.frame for event in events})[-FRAMES:])
    return [event for event in events if event.frame in newest]


def _bar(row: int, event: TraceEvent, origin: float) -> list[Any]:
    start = max(event.start, origin)
    return [row, event.frame, event.kind, _milliseconds(start - origin), _milliseconds(event.end - start)]


def histogram(seconds: Sequence[float]) -> dict[str, Any]:
    """Count durations in equal steps up to the 99th percentile.

    ``from`` and ``to`` are in milliseconds, ``counts`` for each step, and ``above`` is how many are above.
    """
    if not seconds:
        return {"from": 0.0, "to": 0.0, "counts": [], "above": 0}
    values = np.asarray(seconds)
    # One outlier, such as the first frame, would squeeze all others into one bar.
    low, high = float(values.min()), float(np.partition(values, -(len(values) // 100) - 1)[-(len(values) // 100) - 1])
    # Equal durations, as simulated stages have them, need a range of their own.
    counts, _ = np.histogram(values, BARS, (low, high if high > low else low + 1e-6))
    return {
        "from": _milliseconds(low),
        "to": _milliseconds(high),
        "counts": counts.tolist(),
        "above": len(values) - int(counts.sum()),
    }


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)
