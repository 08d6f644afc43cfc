"""Writers: the loops of each operator that has a kernel of its own, with what was fused to it."""

from __future__ import annotations

from typing import Any

import msgspec

from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.convolutions import writers as convolutions
from pipeline.executor.schedules.lines import writers as lines
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.products import writers as products
from pipeline.executor.schedules.tiled.packing import TUNED
from pipeline.executor.schedules.writer import Writer

ENOUGH = 500_000
"""Operations that take longer than to wake another core: a few microseconds."""

_WRITERS: dict[str, Writer] = {**convolutions.WRITERS, **products.WRITERS, **lines.WRITERS}


def write(fused: Fused, machine: Machine, cores: int) -> Any:
    """Return the statement of a fused function."""
    writer, form = _of(fused)
    return writer.statement(fused, form, machine, _tasks(fused, cores))


def operations(fused: Fused) -> int:
    """Return the floating-point operations of the rule's own part; roughly, where it is not multiplications."""
    writer, form = _of(fused)
    return writer.operations(form)


def exact(fused: Fused, machine: Machine, cores: int) -> bool:
    """Whether a fused function is known to compute each element once only."""
    writer, form = _of(fused)
    return writer.exact is not None and writer.exact(fused, form, machine, _tasks(fused, cores))


def _of(fused: Fused) -> tuple[Writer, Any]:
    writer = _WRITERS[fused.description.rule.removeprefix(TUNED)]
    return writer, msgspec.json.decode(fused.description.detail, type=writer.form)


def _tasks(fused: Fused, cores: int) -> int:
    """Return how many cores are worth being woken."""
    writer, form = _of(fused)
    return max(1, min(cores, writer.operations(form) * writer.effort // ENOUGH))
