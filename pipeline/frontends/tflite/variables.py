"""Variables of a TFLite file as inputs and outputs, with the values of a first frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from pipeline.core.packed_model import LITERT
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.island_writer import IslandWriter

_KINDS = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE"})


class Variable(NamedTuple):
    """A variable: what it is read as, what it becomes, and its first value."""

    before: TfliteTensor
    after: TfliteTensor
    initial: np.ndarray


def open_variables(content: bytes) -> tuple[bytes, list[np.ndarray]]:
    """Return a file whose variables are its last inputs and outputs, and their first values.

    It is the same file if there are none, or not each of them is read once and then assigned once in a frame: such
    operators are left to LiteRT.
    """
    graph = TfliteGraph(content)
    if not LITERT.is_installed or not any(operator.kind == "VAR_HANDLE" for operator in graph.operators):
        return content, []
    try:
        variables = list(_variables(graph))
    except LookupError:
        return content, []
    operators = [operator for operator in graph.operators if operator.kind not in _KINDS]
    inputs = [*graph.inputs, *(variable.before for variable in variables)]
    outputs = [*graph.outputs, *(variable.after for variable in variables)]
    return IslandWriter(graph).write_file(operators, inputs, outputs), [variable.initial for variable in variables]


def _variables(graph: TfliteGraph) -> Iterator[Variable]:
    """Yield the variables; `LookupError` for one that is used in another way."""
    first_values: dict[str, np.ndarray] = {}
    for operator in graph.operators:
        if operator.kind == "CALL_ONCE":
            first_values |= _first_values(TfliteGraph(graph.content, operator.options.InitSubgraphIndex()))
    for name, (reads, assignments) in _uses(graph).items():
        if len(reads) != 1 or len(assignments) != 1 or reads[0].number > assignments[0].number:
            raise LookupError(name)
        before, after = reads[0].outputs[0], assignments[0].operands[1]
        if not before.in_frames or (before.shape, before.dtype) != (after.shape, after.dtype) or after.is_constant:
            raise LookupError(name)
        # One that is never initialised begins with zeros, as on microcontrollers.
        initial = first_values.get(name, np.zeros(before.shape, before.dtype))
        yield Variable(before, after, np.broadcast_to(initial, before.shape))


def _uses(graph: TfliteGraph) -> Mapping[str, tuple[list[TfliteOperator], list[TfliteOperator]]]:
    """Return what reads and what assigns each variable."""
    names = _handles(graph)
    uses: dict[str, tuple[list[TfliteOperator], list[TfliteOperator]]] = {name: ([], []) for name in names.values()}
    for operator in graph.operators:
        if operator.kind in {"READ_VARIABLE", "ASSIGN_VARIABLE"}:
            uses[names[operator.operands[0].number]][operator.kind == "ASSIGN_VARIABLE"].append(operator)
    return uses


def _first_values(graph: TfliteGraph) -> dict[str, np.ndarray]:
    """Return what a graph for the first frame assigns; `LookupError` if it computes anything."""
    names, values = _handles(graph), {}
    for operator in graph.operators:
        if operator.kind == "VAR_HANDLE":
            continue
        if operator.kind != "ASSIGN_VARIABLE" or operator.operands[1].values is None:
            raise LookupError(operator.kind)
        values[names[operator.operands[0].number]] = operator.operands[1].values
    return values


def _handles(graph: TfliteGraph) -> dict[int, str]:
    """Return the variable of each handle, by the number of its tensor."""
    return {
        operator.outputs[0].number: f"{operator.options.Container()}/{operator.options.SharedName()}"
        for operator in graph.operators
        if operator.kind == "VAR_HANDLE"
    }
