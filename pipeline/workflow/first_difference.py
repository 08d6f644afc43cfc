"""First difference: the operator where a graph departs from its library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.comparison.judgement import Bounds, Judgement, ReferenceOutput, judge
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.errors import PipelineError
from pipeline.frontends import references
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.workflow import unsplit

Arrays = Mapping[str, np.ndarray]

LOOSENESS = 10
"""Factor on tolerances inside of a model. Values that are nearly cancelled out later may be further away than its
outputs are."""

MOST_BYTES = 1 << 30
"""Most bytes of intermediate tensors at once; of larger models only some are compared."""


def describe(graph: Graph, plan: Plan, frame: Arrays, wrong: Sequence[str], bounds: Bounds) -> str:
    """Name the first differing operator before a wrong output, if any.

    The graph is computed on the device of the plan's first stage.
    """
    # Its name is help beside an error that is reported anyway: whatever fails here must not take its place.
    try:
        expected = _intermediates(graph, frame)
        specs = _affordable([graph.tensors[name] for name in expected])
        results = unsplit.outputs_of(graph, plan, [frame], specs)[0]
    except (PipelineError, MemoryError):
        return ""
    judgements = {
        spec.name: _judge(results[spec.name], expected[spec.name], bounds)
        for spec in specs
        if results[spec.name].shape == expected[spec.name].shape
    }
    operator = _first(graph, wrong, judgements)
    if operator is None:
        return ""
    problems = [judgements[name].problem for name in operator.outputs if name in judgements]
    # What is allowed of outputs is said with them.
    problem = "".join(f" {text.partition(';')[0]}" for text in problems[:1])
    return f"the first operator that differs is {operator.name!r} ({operator.kind}){problem}"


def _intermediates(graph: Graph, frame: Arrays) -> dict[str, np.ndarray]:
    """Return the libraries' intermediate tensors by graph names."""
    made_names = {name for operator in graph.operators for name in operator.outputs}
    tensors: dict[str, np.ndarray] = dict(frame)
    for source in graph.sources:
        # Only a few tensors are called otherwise than in the model: those of a chain of several.
        names = {name: source.tensor(name) for name in (*made_names, *source.names)}
        names_in_model = [name for name, tensor in names.items() if tensor in made_names]
        inputs = {name: tensors[source.tensor(name)] for name in source.inputs}
        tensors |= {
            names[name]: array for name, array in references.intermediates(source.model, inputs, names_in_model).items()
        }
    return {name: array for name, array in tensors.items() if name in made_names}


def _affordable(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return all tensors, or every nth of many large ones."""
    every = 1 + sum(spec.nbytes for spec in specs) // MOST_BYTES
    return list(specs[::every])


def _judge(result: np.ndarray, expected: np.ndarray, bounds: Bounds) -> Judgement:
    if expected.dtype.kind in "iub" and expected.dtype.itemsize <= 2:
        # A few elements of a map are rounding; an operator that is wrong differs at many.
        loose_bounds = replace(bounds, remote=LOOSENESS * bounds.remote)
        return judge(result, ReferenceOutput(expected, step=1.0), loose_bounds)
    return judge(result, ReferenceOutput(expected), replace(bounds, share=LOOSENESS * bounds.share))


def _first(graph: Graph, wrong: Sequence[str], judgements: Mapping[str, Judgement]) -> Operator | None:
    """Return the first operator with equal inputs on ways to wrong outputs."""
    makers = {name: position for position, operator in enumerate(graph.operators) for name in operator.outputs}
    ends, visited = [makers[name] for name in wrong if name in makers], set[int]()
    beginnings = []
    while ends:
        position = ends.pop()
        if position in visited:
            continue
        visited.add(position)
        read = _comparable_inputs(graph, position, makers, judgements)
        if different := [makers[name] for name in read if judgements[name].problem]:
            ends += different
        else:
            beginnings.append(position)
    return graph.operators[min(beginnings)] if beginnings else None


def _comparable_inputs(
    graph: Graph, position: int, makers: Mapping[str, int], judgements: Mapping[str, Judgement]
) -> Iterator[str]:
    """Yield the nearest earlier tensors known to the model too."""
    names, visited = list(graph.operators[position].inputs), set[str]()
    while names:
        name = names.pop()
        if name not in makers or name in visited:
            continue
        visited.add(name)
        if name in judgements:
            yield name
        else:
            names += graph.operators[makers[name]].inputs
