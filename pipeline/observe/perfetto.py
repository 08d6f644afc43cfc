"""Trace file: events in JSON for Perfetto and Chrome's tracing page.

Each worker of a stage has a track, with the queue in front of it on tracks of its own, since several frames may wait
at the same time.  Slices are named ``run 12``, ``copy 12`` and ``queue 12`` after the frame's number, which is also
their argument ``frame``; arrows lead from each stage's run of a frame to the next stage's.  Where stages have steps,
each of their devices has a track as well, with who had it when: slices such as ``stage0.step1 12``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipeline.errors import InputError
from pipeline.observe.timeline import lanes
from pipeline.scheduler.trace import TraceEvent
from pipeline.system.files import write_atomically

PROCESS = 1
"""Process of all tracks, so that the viewer shows them one below the other."""


class Track(NamedTuple):
    """Row of the viewer, without overlapping events."""

    name: str
    events: list[TraceEvent]


def save(events: Iterable[TraceEvent], path: str | Path, *, model: str = "", stages: Sequence[str] = ()) -> None:
    """Write one pipeline's events, in any order, for https://ui.perfetto.dev or chrome://tracing.

    The file appears only when it is complete. Its tracks have the model as their title and the order of the stages;
    stages that are not named follow, by their first event. Raises `InputError` if there is no place for the file.
    """
    path = Path(path)
    check(path)
    content = {
        "displayTimeUnit": "ms",
        "otherData": {"producer": "soc-pipeline", "model": model},
        "traceEvents": records(events, model, stages),
    }
    write_atomically(path, msgspec.json.encode(content) + b"\n")


def check(path: Path) -> None:
    """Raise `InputError` for an unwritable trace, before frames run."""
    if path.is_dir():
        raise InputError(f"cannot write the trace to {str(path)!r}: it is a folder")
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write the trace to {str(path)!r}: there is no folder {str(path.parent)!r}")


def records(events: Iterable[TraceEvent], model: str = "", stages: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the format's records, in microseconds since the first event."""
    sorted_events = sorted(events, key=lambda event: event.start)
    # The clock of the events counts from the start of the machine; its large numbers would cost digits.
    origin = sorted_events[0].start if sorted_events else 0.0
    trace_records = [_meta("process_name", 0, name=f"pipeline {model}".strip())]
    runs: list[tuple[TraceEvent, int]] = []
    for number, track in enumerate(_tracks(sorted_events, stages), start=1):
        trace_records.append(_meta("thread_name", number, name=track.name))
        trace_records.append(_meta("thread_sort_index", number, sort_index=number))
        trace_records.extend(_slice(event, number, origin) for event in track.events)
        # Arrows are drawn between runs, on whichever tracks these lie.
        runs += [(event, number) for event in track.events if event.kind == "run"]
    return [*trace_records, *_flows(runs, origin)]


def _tracks(events: Sequence[TraceEvent], stages: Sequence[str]) -> Iterator[Track]:
    # Stages of the plan in its order, then those that came in by a swap.
    for stage in dict.fromkeys([*stages, *(event.stage for event in events)]):
        stage_events = [event for event in events if event.stage == stage]
        yield from _lanes(f"queue of {stage}", [event for event in stage_events if event.kind == "queue"])
        work = [event for event in stage_events if event.kind not in ("queue", "step")]
        # As they occur: a trace may be of several plans, and has no numbers of replicas.
        replicas = sorted({event.replica for event in work})
        for replica in replicas:
            name = stage if replicas == [0] else f"{stage}, replica {replica}"
            yield from _lanes(name, [event for event in work if event.replica == replica])
    steps = [event for event in events if event.kind == "step"]
    for device in dict.fromkeys(event.device for event in steps):
        yield from _lanes(f"device {device}", [event for event in steps if event.device == device])


def _lanes(name: str, events: Sequence[TraceEvent]) -> Iterator[Track]:
    """Divide events, in order of start, into tracks without overlaps."""
    event_lanes = lanes(events)
    for lane in sorted(set(event_lanes)):
        lane_events = [event for event, event_lane in zip(events, event_lanes, strict=True) if event_lane == lane]
        yield Track(f"{name} ({lane + 1})" if lane else name, lane_events)


def _meta(kind: str, track: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": PROCESS, "tid": track, "args": arguments}


def _slice(event: TraceEvent, track: int, origin: float) -> dict[str, Any]:
    # From whole nanoseconds, so that rounding never makes neighbours overlap.
    start, end = _nanoseconds(event.start - origin), _nanoseconds(event.end - origin)
    return {
        "ph": "X",
        "name": f"{event.stage if event.kind == 'step' else event.kind} {event.frame}",
        "cat": event.kind,
        "pid": PROCESS,
        "tid": track,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": {"frame": event.frame},
    }


def _flows(runs: Iterable[tuple[TraceEvent, int]], origin: float) -> Iterator[dict[str, Any]]:
    journeys: dict[int, list[tuple[TraceEvent, int]]] = {}
    for event, track in runs:
        journeys.setdefault(event.frame, []).append((event, track))
    for frame, journey in sorted(journeys.items()):
        journey.sort(key=lambda run: run[0].start)
        # Start, steps and end of a flow, by the letters of the format; one run alone has no arrow.
        phases = ["s", *"t" * (len(journey) - 2), "f"] if len(journey) > 1 else []
        for phase, (event, track) in zip(phases, journey, strict=False):
            yield _flow(phase, frame, track, _nanoseconds(event.start - origin) / 1000)


def _flow(phase: str, frame: int, track: int, time: float) -> dict[str, Any]:
    flow = {"ph": phase, "name": "frame", "cat": "frame", "id": frame, "pid": PROCESS, "tid": track, "ts": time}
    # The end would otherwise point at the next slice instead of the one that begins here.
    return {**flow, "bp": "e"} if phase == "f" else flow


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
