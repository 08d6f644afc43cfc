"""Live table: a running pipeline's stages on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pipeline.commands.shared.console import can_draw

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics, StepStatistics

PER_SECOND = 2
"""While it is drawn, the interpreter is taken from the workers."""

WAITING = 0.05
"""Share of a stage's time from which on its waits for the interpreter are named."""

COLUMNS = ("stage", "busy", "queue", "run p50 ms", "p95", "p99", "wait p50 ms", "copy p50 ms", "in", "out")


class Display:
    """Current step, and a streaming pipeline's table; nothing without terminal.

    By default it is on standard error, so that results can be piped. If `keep` is True, the last table stays on the
    terminal. Each redraw takes the interpreter from the workers.
    """

    def __init__(
        self,
        text: str,
        *,
        keep: bool = True,
        console: Console | None = None,
        per_second: float = PER_SECOND,
        hidden: bool = False,
    ) -> None:
        self._keep = keep
        self._spinner: RenderableType = text
        self._read: Callable[[], Statistics] | None = None
        self._live = (
            self._make_live(console, per_second) if console is not None or (can_draw() and not hidden) else None
        )
        self.step(text)

    def _make_live(self, console: Console | None, per_second: float) -> Live:
        from rich.console import Console
        from rich.live import Live

        # Not redirected: results on standard output must not pass through the drawing.
        return Live(
            get_renderable=self._draw,
            console=console or Console(stderr=True),
            refresh_per_second=per_second,
            redirect_stdout=False,
        )

    def step(self, text: str) -> None:
        """Show the present step."""
        if self._live is not None:
            from rich.spinner import Spinner

            self._spinner = Spinner("dots", text)

    def watch(self, read: Callable[[], Statistics]) -> None:
        """Show the statistics of `read` from now on."""
        self._read = read

    def __enter__(self) -> Display:  # noqa: PYI034 - Self is newer than the oldest Python
        from pipeline.scheduler.interrupts import uninterrupted

        if self._live is not None and self._live.console.is_terminal:
            # Else Ctrl-C may leave locked what the drawing thread waits for.
            uninterrupted(self._live.start)()
        return self

    def __exit__(self, *_: object) -> None:
        from pipeline.scheduler.interrupts import uninterrupted

        if self._live is None or not self._live.is_started:
            return
        # A spinner that stayed would claim to be at it still.
        self._spinner = ""
        # A table of no frames at all says nothing, and goes.
        self._live.transient = not (self._keep and self._read and self._read().submitted)
        uninterrupted(self._live.stop)()

    def _draw(self) -> RenderableType:
        if self._read is None:
            return self._spinner
        from rich.console import Group
        from rich.text import Text

        counts = self._read()
        return Group(table(counts), Text(totals(counts)), self._spinner)


def table(statistics: Statistics) -> Text:
    """Return the stages as text, drawn 20 times faster than `rich.table`."""
    from rich.text import Text

    rows: list[tuple[str, ...]] = [COLUMNS]
    for stage in statistics.stages:
        rows += [_cells(stage), *(_step_cells(stage, step) for step in stage.steps)]
    # Counted anew each time, since numbers grow.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    text = Text("\n".join(lines), no_wrap=True, overflow="crop")
    text.stylize("bold", 0, len(lines[0]))
    return text


def _cells(stage: StageStatistics) -> tuple[str, ...]:
    return (
        stage.name,
        f"{stage.busy:.0%}",
        str(stage.queue_length),
        *_milliseconds(stage.run_s),
        _milliseconds(stage.wait_s)[0],
        _milliseconds(stage.copy_s)[0],
        str(stage.frames_in),
        str(stage.frames_out),
    )


def _step_cells(stage: StageStatistics, step: StepStatistics) -> tuple[str, ...]:
    """Return a step's row, with waits for its device."""
    # Of the stage's workers: that is what the stage's own share is of.
    busy = stage.busy * step.busy_s / stage.busy_s if stage.busy_s else 0.0
    times = (*_milliseconds(step.run_s), _milliseconds(step.wait_s)[0], _milliseconds(step.copy_s)[0])
    return (f"  {step.name} on {step.device}", f"{busy:.0%}", "", *times, "", "")


def totals(counts: Statistics) -> str:
    """Sum up the ends of the frames."""
    ends = {"failed": counts.failed, "cancelled": counts.cancelled}
    ends |= {f"dropped ({reason})": count for reason, count in counts.dropped.items()}
    parts = [
        f"{counts.submitted} frames in",
        f"{counts.in_flight} in flight",
        f"{counts.delivered} delivered",
    ]
    parts += [f"{count} {end}" for end, count in ends.items() if count]
    middle, _, worst = _milliseconds(counts.latency_s)
    return f"{', '.join(parts)}\n{counts.frames_per_s:.1f} frames/s, latency p50 {middle} ms, p99 {worst} ms"


def interpreter_note(shares: Mapping[str, float]) -> str:
    """Name the stage that waited most for the interpreter; empty where that hardly matters."""
    name, share = max(shares.items(), key=lambda item: item[1], default=("", 0.0))
    if share < WAITING:
        return ""
    return (
        f"{name} waited {share:.0%} of its busy time for Python's interpreter, which other threads of this "
        "process held; see docs/limits.md."
    )


def _milliseconds(durations: Percentiles) -> tuple[str, str, str]:
    return f"{durations.p50 * 1e3:.3f}", f"{durations.p95 * 1e3:.3f}", f"{durations.p99 * 1e3:.3f}"
