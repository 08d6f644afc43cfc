"""Option ``--trace`` of streaming commands."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared.console import notice

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.scheduler.trace import Trace


def argument(parser: argparse.ArgumentParser) -> None:
    """Add where to write a trace."""
    parser.add_argument(
        "--trace", metavar="FILE", help="write what each stage did when; open it at https://ui.perfetto.dev"
    )


@contextlib.contextmanager
def tracing(path: str | None, plan: Plan) -> Iterator[Trace | None]:
    """Yield a trace, written to `path` in any case; None without `path`."""
    if path is None:
        yield None
        return
    from pipeline.observe import perfetto
    from pipeline.scheduler.trace import Trace

    # Before the stream, whose end would be too late to find it out.
    perfetto.check(Path(path))
    trace = Trace()
    try:
        yield trace
    finally:
        # What went wrong, or lasted too long, is what one wants to look at.
        if len(trace):
            perfetto.save(trace.events(), path, model=plan.model, stages=[stage.name for stage in plan.stages])
        if trace.full:
            notice(f"the trace holds the newest {len(trace)} events, from frame {trace.events()[0].frame} on")
