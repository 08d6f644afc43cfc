"""Neighbouring islands of a stage, merged: each crossing costs copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.core import packed_model
from pipeline.core.packed_model import RUNTIMES, PackedPart, SourceRuntime
from pipeline.frontends import formats, grouping
from pipeline.model.passes import bindings
from pipeline.model.passes.bindings import Binding

Merger = Callable[[Sequence[PackedPart], Sequence[int], Sequence[int]], bytes | None]
"""Merger of parts in topological order, with numbers of inputs and outputs, into one model; None if they do not fit
into one."""


def merge_islands(lines: Sequence[Binding], outputs: Sequence[Any]) -> list[Binding]:
    """Return a stage's lines with adjacent islands merged."""
    merged_lines = list(lines)
    for runtime in RUNTIMES.values():
        if any(_kind(line) == runtime.kind for line in lines):
            merger = formats.of_library(runtime).module("merging").merge
            merged_lines = _merge_kind(merged_lines, set(outputs), runtime, merger)
    return merged_lines


def _kind(line: Binding) -> str:
    return packed_model.function_kind(bindings.island(line.value))


def _merge_kind(lines: Sequence[Binding], outputs: set[Any], runtime: SourceRuntime, merger: Merger) -> list[Binding]:
    units = _units(lines, runtime.kind)
    links = [_links(unit) for unit in units]
    members = {number for number, unit in enumerate(units) if _kind(unit[0]) == runtime.kind}
    groups = [group for group in grouping.find_neighbours(links, members) if len(group) > 1]
    for group, read in zip(groups, grouping.find_results(links, groups), strict=True):
        if merged_unit := _merge([units[n] for n in group], read | outputs, runtime, merger):
            # Links stay as they were: those of a group remain its own, read by the same others.
            units[group[0]] = merged_unit
            for number in group[1:]:
                units[number] = []
    units = [unit for unit in units if unit]
    # What is merged stands where its first part stood, maybe before something that it reads.
    return [line for n in grouping.sort_topologically([_links(unit) for unit in units]) for line in units[n]]


def _units(lines: Sequence[Binding], kind: str) -> list[list[Binding]]:
    """Return the lines, an island's results beside it."""
    units: list[list[Binding]] = []
    island_units: dict[Any, list[Binding]] = {}
    for line in lines:
        if isinstance(line.value, relax.TupleGetItem) and line.value.tuple_value in island_units:
            island_units[line.value.tuple_value].append(line)
            continue
        units.append([line])
        if _kind(line) == kind:
            island_units[line.var] = units[-1]
    return units


def _links(unit: Sequence[Binding]) -> grouping.Links:
    results = tuple(line.var for line in unit)
    read = dict.fromkeys(operand for line in unit for operand in _variables(line.value))
    return grouping.Links(tuple(variable for variable in read if variable not in results), results)


def _variables(value: Any) -> Iterator[Any]:
    return (operand for operand in bindings.operands(value) if isinstance(operand, relax.Var))


def _merge(
    units: Sequence[Sequence[Binding]], read: set[Any], runtime: SourceRuntime, merger: Merger
) -> list[Binding] | None:
    """Return one island's lines for several, with its results read."""
    numbers: dict[Any, int] = {}
    values: dict[int, Any] = {}
    types: dict[int, Any] = {}

    def number(value: Any) -> int:
        # Constants are operands as well, where they are too large for an island: told apart by identity.
        key = value if isinstance(value, relax.Var) else id(value)
        values.setdefault(numbers.setdefault(key, len(numbers)), value)
        return numbers[key]

    parts = []
    for unit in units:
        model, *operands = unit[0].value.args[1].fields
        results = _results(unit)
        part = PackedPart(_model(model), tuple(map(number, operands)), tuple(number(result) for result, _ in results))
        types.update(zip(part.outputs, (result_type for _, result_type in results), strict=True))
        parts.append(part)
    part_outputs = dict.fromkeys(output for part in parts for output in part.outputs)
    inputs = list(dict.fromkeys(operand for part in parts for operand in part.inputs if operand not in part_outputs))
    outputs = [output for output in part_outputs if values[output] in read]
    merged_model = merger(parts, inputs, outputs)
    if merged_model is None:
        return None
    return _island(merged_model, runtime, [values[n] for n in inputs], [(values[n], types[n]) for n in outputs])


def _results(unit: Sequence[Binding]) -> list[tuple[Any, Any]]:
    """Return an island's results with types, in order, unused ones too."""
    call, *items = unit
    if not isinstance(call.value.ty, relax.TupleType):
        return [(call.var, call.value.ty)]
    variables = {int(item.value.index): item.var for item in items}
    fields = enumerate(call.value.ty.fields)
    return [
        (variables[position] if position in variables else relax.Var("unread", field), field)
        for position, field in fields
    ]


def _model(operand: Any) -> bytes:
    return packed_model.unpack(np.from_dlpack(operand.value))


def _island(
    model: bytes, runtime: SourceRuntime, operands: Sequence[Any], results: Sequence[tuple[Any, Any]]
) -> list[Binding]:
    types = [result_type for _, result_type in results]
    call = bindings.call_island(runtime, model, operands, types)
    if len(results) == 1:
        return [Binding(results[0][0], str(results[0][0].name), call)]
    island = relax.Var("island", relax.TupleType(types))
    return [
        Binding(island, "island", call),
        *(
            Binding(variable, str(variable.name), relax.TupleGetItem(island, position))
            for position, (variable, _) in enumerate(results)
        ),
    ]
