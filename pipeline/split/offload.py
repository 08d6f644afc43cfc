"""Offload: groups a compiling accelerator runs, their times, and refusals' reasons."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tvm import relax

from pipeline.core.board.board import Board, Device
from pipeline.model.passes.bindings import operands
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator

# More would be pages on a network of which an accelerator takes only the convolutions.
_MOST = 3
"""Most operators named for a reason."""

Refusals = Mapping[int, str]
"""Reasons why a device does not run fused groups, by index."""


@dataclass(frozen=True)
class Verdict:
    """Result of an accelerator's check of a fused group."""

    seconds: float
    """Seconds by its own estimate; infinite if it cannot run the group."""
    reason: str = ""
    """Reason that it cannot; empty if it can."""


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
        if device_refusals:
            count = f"{len(device_refusals)} of {len(groups)} groups"
            reasons = "; ".join(_by_reason(groups, device_refusals))
            yield f"{name} cannot run {count}, and leaves to other devices: {reasons}."


def _by_reason(groups: Sequence[Sequence[Operator]], refusals: Refusals) -> Iterator[str]:
    """Yield each reason with the operators that it holds for, the most frequent first."""
    by_kind: dict[str, list[int]] = {}
    for group in sorted(refusals):
        # One reason with the numbers and names of many operators is one reason.
        own_names = "|".join(re.escape(operator.name) for operator in groups[group])
        by_kind.setdefault(re.sub(rf"{own_names}|'[^']*'|[\d.,]+", "", refusals[group]), []).append(group)
    for numbers in sorted(by_kind.values(), key=len, reverse=True):
        operators = [groups[group][-1] for group in numbers]
        names = [repr(operator.name) for operator in operators[:_MOST]]
        omission = [f"{len(operators) - _MOST} more"] if len(operators) > _MOST else []
        reasons = dict.fromkeys(refusals[group] for group in numbers)
        such = "such as " if len(reasons) > 1 else ""
        plural = "s" if len(operators) > 1 else ""
        yield f"{len(operators)} operator{plural}: {such}{next(iter(reasons))} ({', '.join(names + omission)})"


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
