"""Operators of the model: its taken-apart calls as one graph operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from pipeline.model.operators import operator_kind
from pipeline.model.passes.bindings import Binding, kind, variables
from pipeline.split.fusion import fuse

_HEAVIEST = ("opaque", "anchor", "reduction", "injective", "broadcast", "elementwise")
"""Patterns in the order in which one of a model operator's calls stands for all of them."""


@dataclass(frozen=True)
class Operator:
    """One operator of a model, as a graph has it."""

    name: str
    """The model's own name for it, or that of its result."""
    kind: str
    """Relax operator without its namespace, such as ``"conv2d"``; of several calls, that of the heaviest."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names of the tensors that it reads and makes; constants do not count."""
    flops: int = 0
    """Floating-point operations per frame."""
    parameter_bytes: int = 0
    """Size of the constants it reads."""
    group: int = 0
    """Number of the fused group it belongs to; groups are contiguous and numbered in order."""
    lines: tuple[Binding, ...] = field(default=(), repr=False, compare=False)
    """Relax bindings; several where the model's operator was taken apart."""

    @property
    def calls(self) -> Sequence[Operator]:
        """Calls of the model's operator, as operators without costs.

        It is the operator itself if that was not taken apart.
        """
        return calls_of(self.lines) or [self]


def calls_of(bindings: Iterable[Any]) -> list[Operator]:
    """Return an operator for each call.

    Fields of a tuple belong to the call that makes the tuple.
    """
    # Dictionaries keep the order of the bindings, which is topological.
    calls: dict[Any, list[Binding]] = {}
    owner: dict[Any, Any] = {}
    for binding in bindings:
        owner_var = binding.value.tuple_value if isinstance(binding.value, relax.TupleGetItem) else binding.var
        owner[binding.var] = owner.get(owner_var, binding.var)
        line = Binding(binding.var, str(binding.var.name), binding.value)
        calls.setdefault(owner[binding.var], []).append(line)
    return [_call(lines) for lines in calls.values()]


def _call(lines: Sequence[Binding]) -> Operator:
    outputs = tuple(line.name for line in lines if not hasattr(line.var.ty, "fields"))
    inputs = [str(variable.name) for variable in variables(lines[0].value)]
    return Operator(outputs[0], kind(lines[0].value), tuple(dict.fromkeys(inputs)), outputs, lines=tuple(lines))


def readers_of(operators: Sequence[Operator]) -> list[list[int]]:
    """Return the readers of each operator's results."""
    maker = {name: index for index, operator in enumerate(operators) for name in operator.outputs}
    readers: list[list[int]] = [[] for _ in operators]
    for index, operator in enumerate(operators):
        for source in {maker[name] for name in operator.inputs if name in maker}:
            readers[source].append(index)
    return readers


def fused_with(operators: Sequence[Operator], leaving: Collection[str], inner_names: frozenset[str]) -> list[int]:
    """Return each operator's last fusion partner; see `pipeline.split.fusion.fuse`."""
    escapes = [any(name in leaving for name in operator.outputs) for operator in operators]
    parts = [inner_names.issuperset(operator.outputs) for operator in operators]
    return fuse([operator.kind for operator in operators], readers_of(operators), escapes, parts)


def group_by_model(
    calls: Sequence[Operator], leaving: Collection[str], inner_names: frozenset[str]
) -> tuple[Operator, ...]:
    """Return the model's operators, fusing ones side by side.

    Calls are in topological order; `leaving` are the model's results. The model does not know `inner_names`, since one
    of its operators was taken apart.
    """
    last = fused_with(calls, leaving, inner_names)
    members: dict[int, list[int]] = {}
    for index, root in enumerate(_roots(calls, inner_names)):
        members.setdefault(root, []).append(index)
    # By the last operator of each group, which is a topological order of the groups; within one as they were.
    order = sorted(members, key=lambda root: (last[root], root))
    numbers = {end: number for number, end in enumerate(sorted({last[root] for root in order}))}
    return tuple(_merged([calls[index] for index in members[root]], numbers[last[root]]) for root in order)


def _roots(calls: Sequence[Operator], inner_names: frozenset[str]) -> list[int]:
    """Return each call's last one in its operator of the model."""
    roots = list(range(len(calls)))
    # Backwards, as all readers of a call come behind it.
    for index, readers in reversed(list(enumerate(readers_of(calls)))):
        heirs = {roots[reader] for reader in readers}
        if len(heirs) == 1 and inner_names.issuperset(calls[index].outputs):
            roots[index] = heirs.pop()
    return roots


def _merged(calls: Sequence[Operator], group: int) -> Operator:
    """Return calls as one operator with the last one's result. Other operators read nothing else of these calls."""
    produced = {name for call in calls for name in call.outputs}
    inputs = dict.fromkeys(name for call in calls for name in call.inputs if name not in produced)
    return replace(
        calls[-1],
        kind=min(enumerate(calls), key=_weight)[1].kind,
        inputs=tuple(inputs),
        flops=sum(call.flops for call in calls),
        parameter_bytes=sum(call.parameter_bytes for call in calls),
        group=group,
        lines=tuple(line for call in calls for line in call.lines),
    )


def _weight(numbered: tuple[int, Operator]) -> tuple[int, int, int]:
    """Return a sort key, the most telling call first."""
    position, call = numbered
    # What combines tensors says more than what changes one, and the last of several more than the first.
    return _HEAVIEST.index(operator_kind(call.kind).pattern), -len(call.inputs), -position
