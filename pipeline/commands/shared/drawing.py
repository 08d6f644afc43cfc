"""Drawings of plans: predicted work of stages on frames, optionally beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipeline.errors import InputError
from pipeline.system.files import check_regular

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan, StagePlan
    from pipeline.scheduler.trace import TraceEvent

FRAMES = 12
"""Frames that leave the last stage in the time shown."""


def check(path: Path) -> None:
    """Raise `InputError` for an impossible picture, before the work."""
    from pipeline.observe import timeline

    timeline.image_format(path)
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot draw to {str(path)!r}: there is no folder {str(path.parent)!r}")


def draw(plan: Plan, path: str | Path, measured_events: Sequence[TraceEvent] | None = None) -> None:
    """Draw a plan's simulated steady state, optionally beside a real run's events."""
    from pipeline.observe import timeline
    from pipeline.simulation import simulate

    names = [stage.name for stage in plan.stages]
    sides = ["predicted"] if measured_events is None else ["predicted", "measured"]
    # Until the steady state, then what is shown, then what keeps the stages busy until its end.
    frames = 2 * len(names) + FRAMES + plan.frames_in_flight
    predicted_events = simulate(plan, frames=frames, trace=True).events
    runs = [predicted_events] if measured_events is None else [predicted_events, measured_events]
    row_events = [
        event._replace(stage=f"{event.stage} {side}" if measured_events else event.stage)
        for side, events in zip(sides, runs, strict=True)
        for event in _steady(events, names, plan)
    ]
    # The last row is the last stage's, whose pace is that of the pipeline.
    row_names = [*_borrowed(plan), *(row for stage in plan.stages for row in _rows(stage))]
    rows = [f"{row} {side}" if measured_events else row for row in row_names for side in sides]
    timeline.draw(row_events, path, f"{plan.model} on {plan.board.name}: {' and '.join(sides)}", FRAMES, rows)


def _rows(stage: StagePlan) -> list[str]:
    """Return a stage's rows, one per concurrent replica."""
    return [stage.name, *(f"{stage.name}, {replica}" for replica in range(1, stage.replicas))]


def _borrowed(plan: Plan) -> list[str]:
    """Return the borrowed devices, shown in rows of their own."""
    from pipeline.prediction.borrowing import borrowed_devices

    names = (name for stage in plan.stages for name in borrowed_devices(plan.board, stage))
    return list(dict.fromkeys(names))


def _row(plan: Plan, event: TraceEvent) -> str | None:
    """Return an event's row, if any."""
    if event.kind == "step":
        return event.device if event.device in _borrowed(plan) else None
    # Waiting is in front of the stage, whichever replica takes the frame then.
    return event.stage if event.kind == "queue" else _rows(plan.stage(event.stage))[event.replica]


def _steady(events: Sequence[TraceEvent], stages: Sequence[str], plan: Plan) -> list[TraceEvent]:
    """Return steady-state events by row, with times and frames from 0."""
    from pipeline.observe import timeline

    begin, end = timeline.window(events, stages, FRAMES)
    visible_events = [event for event in events if event.end > begin and event.start < end]
    first = min(event.frame for event in visible_events)
    return [
        event._replace(
            stage=row,
            kind="run" if event.kind == "step" else event.kind,
            frame=event.frame - first,
            start=max(event.start - begin, 0.0),
            end=min(event.end, end) - begin,
        )
        for event in visible_events
        if (row := _row(plan, event)) is not None
    ]


def read_trace(path: str | Path, stages: Sequence[str]) -> list[TraceEvent]:
    """Read the events of ``soc-pipeline run --trace``; `InputError` if it is none, or has none of the stages."""
    try:
        check_regular(Path(path))
        trace_file = msgspec.json.decode(Path(path).read_bytes(), type=_Trace)
    except OSError as error:
        raise InputError(f"cannot read the trace {str(path)!r}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: not a trace of 'soc-pipeline run --trace': {error}") from None
    # Slices have a track's number, and a record of its own has its name.
    tracks = {
        event.tid: str(event.args.get("name", "")) for event in trace_file.traceEvents if event.name == "thread_name"
    }
    events = [
        event for record in trace_file.traceEvents if (event := _event(record, tracks.get(record.tid, ""), stages))
    ]
    if all(event.kind == "step" for event in events):
        raise InputError(f"{path}: no stage of the plan ran in this trace; the plan has {', '.join(stages)}")
    return events


class _Record(msgspec.Struct):
    name: str
    tid: int = 0
    ph: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, object] = {}


class _Trace(msgspec.Struct):
    traceEvents: list[_Record]  # noqa: N815 - the format's name


def _event(record: _Record, track: str, stages: Sequence[str]) -> TraceEvent | None:
    from pipeline.scheduler.trace import TraceEvent

    kind, _, _ = record.name.partition(" ")
    stage = next((name for name in stages if track == name or track.startswith((f"{name},", f"{name} ("))), None)
    frame = record.args.get("frame")
    times = record.ts / 1e6, (record.ts + record.dur) / 1e6
    if record.ph == "X" and stage is None and isinstance(frame, int) and track.startswith("device "):
        device = track.removeprefix("device ").partition(" (")[0]
        return TraceEvent(record.name.rpartition(" ")[0], frame, "step", *times, device=device)
    # Names of tracks, arrows, and tracks of other programs.
    if record.ph != "X" or stage is None or not isinstance(frame, int):
        return None
    # Named `a`, `a, replica 1` or `a (2)`, by `perfetto`.
    replica = track.partition(", replica ")[2].partition(" ")[0]
    return TraceEvent(stage, frame, kind, *times, int(replica) if replica.isdecimal() else 0)
