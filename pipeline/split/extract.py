"""Graph + cuts -> one Relax module per stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from pipeline.core.plan.plan import TensorSpec
from pipeline.model.passes.bindings import Binding, function, operands
from pipeline.model.passes.bindings import module as joined
from pipeline.split.cuts import bounds
from pipeline.split.graph import Graph
from pipeline.split.island_merging import merge_islands
from pipeline.split.model_operators import Operator
from pipeline.tvm.access import compiler_lock


@dataclass(frozen=True)
class GraphPart:
    """Operators of a stage, with its inputs and outputs."""

    operators: tuple[Operator, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    kernels: Mapping[Any, Any] = field(repr=False)


def parts(graph: Graph, positions: Sequence[int]) -> list[GraphPart]:
    """Return the parts between consecutive cuts at `positions`."""
    ranges = bounds(graph, positions)
    last_reader = {name: index for index, operator in enumerate(graph.operators) for name in operator.inputs}
    # The caller reads behind the last operator, so that an output leaves whichever stage makes it.
    last_reader.update({spec.name: len(graph.operators) for spec in graph.outputs})
    return [_part(graph, graph.operators[start:end], end, last_reader) for start, end in ranges]


def groups_part(graph: Graph, begin: int, end: int) -> GraphPart:
    """Return the part of the fused groups ``[begin, end)``."""
    edges = (0, *graph.group_ends)
    # The ends of the graph are no cuts.
    cuts = [edge for edge in (edges[begin], edges[end]) if 0 < edge < edges[-1]]
    return parts(graph, cuts)[1 if begin else 0]


def _part(graph: Graph, operators: tuple[Operator, ...], end: int, last_reader: dict[str, int]) -> GraphPart:
    results = {name for operator in operators for name in operator.outputs}
    read = dict.fromkeys(name for operator in operators for name in operator.inputs if name not in results)
    leaving = [name for operator in operators for name in operator.outputs if last_reader.get(name, -1) >= end]
    inputs, outputs = (tuple(graph.tensors[name] for name in names) for names in (read, leaving))
    return GraphPart(operators, inputs, outputs, graph.kernels)


def module(part: GraphPart) -> Any:
    """Return a part's Relax module, ``main`` from inputs to outputs in order."""
    lines = [line for operator in part.operators for line in operator.lines]
    variables = {
        str(operand.name): operand
        for line in lines
        for operand in operands(line.value)
        if isinstance(operand, relax.Var)
    }
    variables.update({line.name: line.var for line in lines})
    outputs = [variables[spec.name] for spec in part.outputs]
    # TVM's builders keep a stack for the whole process; other threads may be reading or compiling models.
    with compiler_lock:
        lines = merge_islands(lines, outputs)
        # TVM's passes would rename the function if a variable had its name.
        spelt = [Binding(line.var, "main:" if line.name == "main" else line.name, line.value) for line in lines]
        main = function([variables[spec.name] for spec in part.inputs], spelt, outputs)
        return joined(main, part.kernels)
