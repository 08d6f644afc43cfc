"""Offload: groups a compiling accelerator runs, their times, and refusals' reasons."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tvm import relax

from pipeline.core.board.board import Board, Device
from pipeline.model.passes.bindings import operands
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator

# More would be pages on a network of which an accelerator takes only the convolutions.
_MOST = 8
"""Most groups named in a note."""

Refusals = Mapping[int, str]
"""Reasons why a device does not run fused groups, by index."""


@dataclass(frozen=True)
class Verdict:
    """Result of an accelerator's check of a fused group.

    Attributes
    ----------
    seconds : float
        Seconds by its own estimate; infinite if it cannot run the group.
    reason : str
        Reason that it cannot; empty if it can.
    """

    seconds: float
    reason: str = ""


def applies(device: Device) -> bool:
    """Check for such an accelerator with stated capabilities."""
    return bool(device.capabilities.planning) and (device.target or {}).get("kind") == device.capabilities.target


def verdicts(graph: Graph, groups: Sequence[Sequence[Operator]], device: Device) -> list[Verdict]:
    """Return an accelerator's verdicts on fused groups."""
    by_device = _verdicts.setdefault(graph, {})
    key = device.kind, repr(device.target)
    if key not in by_device:
        leaving = _names_that_leave(graph)
        by_device[key] = [_verdict(group, leaving, device) for group in groups]
    return by_device[key]


def notes(
    graph: Graph, groups: Sequence[Sequence[Operator]], board: Board, refusals: Mapping[str, Refusals]
) -> Iterator[str]:
    """Yield each asked device's refused groups, with reasons."""
    by_device = {device.name: _refusals(graph, groups, device) for device in filter(applies, board.devices)}
    for name, device_refusals in (by_device | {**refusals}).items():
        reasons = [f"{groups[group][-1].name!r} ({reason})" for group, reason in sorted(device_refusals.items())]
        if reasons:
            omission = f" and {len(reasons) - _MOST} more" if len(reasons) > _MOST else ""
            yield f"{name} cannot run, and leaves to other devices: {', '.join(reasons[:_MOST])}{omission}."


def _refusals(graph: Graph, groups: Sequence[Sequence[Operator]], device: Device) -> Refusals:
    pairs = enumerate(verdicts(graph, groups, device))
    return {group: verdict.reason for group, verdict in pairs if verdict.reason}


_verdicts: WeakKeyDictionary[Graph, dict[tuple[str, str], list[Verdict]]] = WeakKeyDictionary()
"""Verdicts by graph, then by the device's kind and target: a plan asks several times, and each time compiles for
seconds."""


def _verdict(group: Sequence[Operator], leaving: set[str], device: Device) -> Verdict:
    lines = [line for operator in group for line in operator.lines]
    results = {line.var for line in lines}
    read = [operand for line in lines for operand in operands(line.value) if isinstance(operand, relax.Var)]
    inputs = list(dict.fromkeys(variable for variable in read if variable not in results))
    outputs = [line.var for line in lines if line.name in leaving]
    # By name, from the registry: this room stands below those of the accelerators.
    planning = importlib.import_module(device.capabilities.planning)
    return Verdict(*planning.verdict(inputs, [(line.var, line.value) for line in lines], outputs, device.target))


def _names_that_leave(graph: Graph) -> set[str]:
    """Return the tensors read by other groups or the caller."""
    makers = {name: operator.group for operator in graph.operators for name in operator.outputs}
    read = {name for operator in graph.operators for name in operator.inputs if makers.get(name) != operator.group}
    return read | {spec.name for spec in graph.outputs}
