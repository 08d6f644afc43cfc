"""Timeline picture: the stages' work on frames over time."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pipeline.errors import InputError
from pipeline.system.files import write_atomically
from pipeline.system.optional import require

FORMATS = ("png", "svg")
PURPOSE = "drawing the timeline"
# Twelve colours: frames that are inside together never share one; dark enough for white figures.
COLOURS = (
    "#2f6fb0", "#d1622b", "#3d8f5f", "#8a5fb0", "#b58a1b", "#c2456e",
    "#2d8c9e", "#7a6a4f", "#5566c4", "#a34a3a", "#6c8f2c", "#9a4f93",
)  # fmt: skip
# Of text, of hints, of the rows, and of the edge around a frame that failed.
INK, GREY, PALE, FAILED = "#22262b", "#6b7280", "#eef0f3", "#d00000"
BAR = 0.56
"""Height of a bar, where a row has height 1; above it the queue is drawn."""

Window = tuple[float, float]


class Event(Protocol):
    """Occurrence in a frame's way through a stage."""

    @property
    def stage(self) -> str:
        """Name of the stage."""

    @property
    def frame(self) -> int:
        """Sequence number of the frame."""

    @property
    def kind(self) -> str:
        """``"queue"`` (waiting at the stage), ``"copy"`` or ``"run"``."""

    @property
    def start(self) -> float:
        """Seconds, on any clock."""

    @property
    def end(self) -> float:
        """Seconds, on the same clock."""


def draw(
    events: Iterable[Event],
    path: str | Path,
    title: str = "Timeline",
    frames: int = 20,
    stages: Sequence[str] | None = None,
) -> None:
    """Draw the steady state: a row per stage, a numbered bar per frame.

    The events are of one pipeline, in any order. The time shown begins when the pipeline is full; that many frames
    leave the last stage in it. Rows are `stages` from the top, by default in the order in which a frame runs through
    them. The file, ``.png`` or ``.svg``, appears only when it is complete. Raises `InputError` if there is no event to
    draw, or the file's name ends otherwise; `MissingExtra` if matplotlib is not installed.
    """
    path = Path(path)
    kind = image_format(path)
    events = list(events)
    # Of a trace file the stages are not known otherwise.
    stages = stages or stage_order(events)
    figure = build_figure(events, stages, window(events, stages, frames), title)
    buffer = io.BytesIO()
    # With a fixed salt and without the date, equal events give equal files.
    with require("matplotlib", "demo", PURPOSE).rc_context({"svg.hashsalt": "timeline"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def image_format(path: Path) -> str:
    """Return ``"png"`` or ``"svg"`` by suffix, or raise `InputError`."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"cannot draw to {str(path)!r}: the name must end in .png or .svg")
    return kind


def stage_order(events: Iterable[Event]) -> list[str]:
    """Return the stages' names in frame order, or raise `InputError`."""
    journeys: dict[int, list[Event]] = {}
    for event in events:
        if event.kind == "run":
            journeys.setdefault(event.frame, []).append(event)
    if not journeys:
        raise InputError("there is nothing to draw: no stage ran in these events; record them with trace=Trace()")
    # A frame at the edge of the record may lack some stages, so the fullest journey counts.
    fullest = max(journeys.values(), key=len)
    return [event.stage for event in sorted(fullest, key=lambda event: event.start)]


def window(events: Iterable[Event], stages: Sequence[str], frames: int) -> Window:
    """Return the time window of `frames` frames in the last stage.

    It begins when the last stage has already run two frames for each stage, so that every row is at work; with
    fewer frames than that, it is the whole time.
    """
    runs = sorted((event for event in events if event.kind == "run"), key=lambda event: event.start)
    last = [event for event in runs if event.stage == stages[-1]]
    # Two frames for each stage: by then queues have filled, and the first frame, which warms up, is gone.
    first = min(2 * len(stages), len(last) - frames)
    if first <= 0:
        return runs[0].start, max(event.end for event in runs)
    return last[first].start, last[first + frames - 1].end


def lanes(waits: Sequence[Event]) -> list[int]:
    """Return the lowest free lane per wait, in order of start."""
    ends: list[float] = []
    wait_lanes = []
    for wait in waits:
        # Lanes that have become free are used again, so that few waits need few lines.
        lowest_lane = next((lane for lane, end in enumerate(ends) if end <= wait.start), len(ends))
        ends[lowest_lane : lowest_lane + 1] = [wait.end]
        wait_lanes.append(lowest_lane)
    return wait_lanes


def build_figure(events: Sequence[Event], stages: Sequence[str], span: Window, title: str) -> Any:
    """Return a time span's matplotlib figure."""
    matplotlib = require("matplotlib.figure", "demo", PURPOSE)
    # 14 inches fill a page in landscape; the rest is title and axis.
    size = (14, 1.6 + 0.95 * len(stages))
    figure = matplotlib.Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    visible_events = sorted((event for event in events if _visible(event, span)), key=lambda event: event.start)
    for row, stage in enumerate(stages):
        stage_events = [event for event in visible_events if event.stage == stage]
        axes.axhspan(row - BAR / 2, row + BAR / 2, color=PALE, linewidth=0, zorder=0)
        _draw_bars(axes, row, [event for event in stage_events if event.kind != "queue"], span)
        _draw_waits(axes, row, [event for event in stage_events if event.kind == "queue"], span)
        _draw_share(axes, row, [event for event in stage_events if event.kind != "queue"], span)
    _label(axes, stages, span, title, _pace(visible_events, stages[-1]))
    _draw_legend(figure, {event.kind for event in visible_events})
    return figure


def _draw_bars(axes: Any, row: int, stage_events: list[Event], span: Window) -> None:
    for event in stage_events:
        x_start, x_end = _milliseconds(event, span)
        colour, number = _colour(event), str(event.frame)
        if event.kind == "copy":
            axes.barh(row, x_end - x_start, BAR, x_start, color="white", edgecolor=colour, hatch="/////", linewidth=0.8)
            continue
        edge = FAILED if event.kind == "failed" else "white"
        axes.barh(row, x_end - x_start, BAR, x_start, color=colour, edgecolor=edge, linewidth=0.8)
        # 11.5 of the 14 inches are left for the axis, beside the names and the shares.
        inches = (x_end - x_start) * 11.5 / ((span[1] - span[0]) * 1e3)
        # Across where it fits, upright where only that fits, else no number at all.
        rotation = 0 if inches > 0.1 * len(number) + 0.06 else 90
        if inches > 0.13:
            style = {"fontsize": 9.5, "color": "white", "weight": "bold", "rotation": rotation}
            axes.text((x_start + x_end) / 2, row, number, ha="center", va="center", clip_on=True, **style)


def _draw_waits(axes: Any, row: int, waits: list[Event], span: Window) -> None:
    wait_lanes = lanes(waits)
    # The space between two rows, divided among the lines if there are many.
    step = min(0.07, 0.36 / (max(wait_lanes, default=0) + 1))
    for wait, lane in zip(waits, wait_lanes, strict=True):
        height = row - BAR / 2 - step * (lane + 0.8)
        axes.plot(_milliseconds(wait, span), [height] * 2, color=_colour(wait), linewidth=1.8, solid_capstyle="butt")


def _draw_share(axes: Any, row: int, stage_events: list[Event], span: Window) -> None:
    run_seconds = [event.end - event.start for event in stage_events if event.kind == "run"] or [0.0]
    busy_seconds = sum(min(event.end, span[1]) - max(event.start, span[0]) for event in stage_events)
    note = f"{sum(run_seconds) / len(run_seconds) * 1e3:.2f} ms\n{busy_seconds / (span[1] - span[0]):.0%} busy"
    axes.annotate(note, (1.008, row), xycoords=("axes fraction", "data"), va="center", fontsize=10, color=INK)


def _label(axes: Any, stages: Sequence[str], span: Window, title: str, pace: str) -> None:
    axes.set_yticks(range(len(stages)), stages, fontsize=11)
    # From the top, with room for the waits above the first row.
    axes.set_ylim(len(stages) - 0.6, -0.72)
    axes.set_xlim(0, (span[1] - span[0]) * 1e3)
    axes.set_xlabel("milliseconds", fontsize=10.5, color=INK)
    axes.set_title(title, loc="left", fontsize=14, weight="bold", color=INK, pad=10)
    axes.set_title(pace, loc="right", fontsize=10.5, color=INK, pad=10)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def _draw_legend(figure: Any, kinds: set[str]) -> None:
    patch = require("matplotlib.patches", "demo", PURPOSE).Patch
    line = require("matplotlib.lines", "demo", PURPOSE).Line2D
    handles = {
        "run": patch(facecolor=GREY, label="runs; the colour and the number are the frame's"),
        "copy": patch(facecolor="white", edgecolor=GREY, hatch="/////", label="copies between devices"),
        "failed": patch(facecolor=GREY, edgecolor=FAILED, label="fails"),
        "queue": line([], [], color=GREY, linewidth=1.8, label="waits in the queue"),
    }
    legend_handles = [handle for kind, handle in handles.items() if kind in kinds]
    figure.legend(
        handles=legend_handles, loc="outside lower right", ncols=4, frameon=False, fontsize=10, labelcolor=INK
    )


def _pace(events: Iterable[Event], last: str) -> str:
    ends = [event.end for event in events if event.stage == last and event.kind == "run"]
    # An interval needs two ends.
    if len(ends) < 2 or ends[-1] <= ends[0]:
        return ""
    interval = (ends[-1] - ends[0]) / (len(ends) - 1)
    return f"one frame every {interval * 1e3:.2f} ms  =  {1 / interval:.0f} frames/s"


def _visible(event: Event, span: Window) -> bool:
    # Handing over by reference is also noted as a copy, of microseconds; it would be a speck on each bar.
    shortest = (span[1] - span[0]) / 1000 if event.kind == "copy" else 0.0
    return event.end > span[0] and event.start < span[1] and event.end - event.start > shortest


def _milliseconds(event: Event, span: Window) -> tuple[float, float]:
    begin, end = span
    return max(0.0, event.start - begin) * 1e3, (min(event.end, end) - begin) * 1e3


def _colour(event: Event) -> str:
    # By its number, so that one frame has one colour on its way through the rows.
    return COLOURS[event.frame % len(COLOURS)]
