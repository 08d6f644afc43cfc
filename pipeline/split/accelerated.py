"""Which fused groups an accelerator with a compiler of its own runs, for how long, and why not the others."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import finalize

from tvm import relax

from pipeline.board import Board, Device
from pipeline.split.graph import Graph, Operator
from pipeline.split.lines import operands

PLANNING = {"vta": "boards.vta.planning"}
"""Kind of device -> module whose ``verdict(inputs, bindings, outputs, target)`` returns the fields of a `Verdict`."""

_MOST = 8
"""Groups that are named."""


@dataclass(frozen=True)
class Verdict:
    """What an accelerator can do for a fused group.

    Attributes
    ----------
    seconds : float
        By its own estimate; infinite if it cannot run the group.
    reason : str
        Why it cannot; empty if it can.
    """

    seconds: float
    reason: str = ""


def applies(device: Device) -> bool:
    """Whether a device is such an accelerator, and the board tells what of."""
    return device.kind in PLANNING and (device.target or {}).get("kind") == device.kind


def verdicts(graph: Graph, groups: Sequence[Sequence[Operator]], device: Device) -> list[Verdict]:
    """Return what an accelerator can do for each of a graph's fused groups."""
    key = (id(graph), device.kind, repr(device.target))
    if key not in _known:
        _known[key] = [_verdict(graph, group, device) for group in groups]
        finalize(graph, _known.pop, key, None)
    return _known[key]


def notes(graph: Graph, groups: Sequence[Sequence[Operator]], board: Board) -> Iterator[str]:
    """Yield for each accelerator of a board what it cannot run, and why."""
    for device in filter(applies, board.devices):
        found = [(group, each.reason) for group, each in zip(groups, verdicts(graph, groups, device), strict=True)]
        left = [f"{group[-1].name!r} ({reason})" for group, reason in found if reason]
        if left:
            more = f" and {len(left) - _MOST} more" if len(left) > _MOST else ""
            yield f"{device.name} cannot run, and leaves to other devices: {', '.join(left[:_MOST])}{more}."


_known: dict[tuple[int, str, str], list[Verdict]] = {}


def _verdict(graph: Graph, group: Sequence[Operator], device: Device) -> Verdict:
    lines = [line for operator in group for line in operator.lines]
    made = {line.var for line in lines}
    read = [each for line in lines for each in operands(line.value) if isinstance(each, relax.Var)]
    inputs = list(dict.fromkeys(each for each in read if each not in made))
    leaving = _leaving(graph, group)
    outputs = [line.var for line in lines if line.name in leaving]
    planning = importlib.import_module(PLANNING[device.kind])
    return Verdict(*planning.verdict(inputs, [(line.var, line.value) for line in lines], outputs, device.target))


def _leaving(graph: Graph, group: Sequence[Operator]) -> set[str]:
    """Return the tensors of a group that others read."""
    own = group[0].group
    read = {name for each in graph.operators if each.group != own for name in each.inputs}
    return read | {spec.name for spec in graph.outputs}
