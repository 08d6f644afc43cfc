"""States of a graph: pairs of outputs and inputs, never cut apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.core.plan.state import State
from pipeline.errors import ModelError, near
from pipeline.split.graph import Graph

_WORDS = re.compile(r"past|present|prev(ious)?|next|new|init(ial)?|final|last|input|output|in|out|[^a-z]")
"""Parts of names that tell the two ends of a state apart."""


def with_states(graph: Graph, pairs: Mapping[str, str]) -> Graph:
    """Return the graph with states besides its own.

    Whatever lies between the first reader of a state and its writer becomes one group: frames of a stream could not
    overlap there, so that a cut would gain nothing. Raises `ModelError` if there is no such input or output, it is used
    twice, or the two differ in shape or dtype.

    `pairs`: output that each input reads in the next frame.
    """
    states = [*graph.states, *(_pair(graph, *pair) for pair in pairs.items())]
    for side in ([state.input.name for state in states], [state.output for state in states]):
        if twice := next((name for name in side if side.count(name) > 1), None):
            raise ModelError(f"{twice!r} of model {graph.name!r} belongs to two states; name it once")
    if len(states) == len(graph.inputs):
        raise ModelError(f"all inputs of model {graph.name!r} would be states; leave one for frames")
    graph = replace(graph, states=tuple(states))
    for state in states:
        graph = _merge_groups(graph, state)
    notes = tuple(
        f"output {output!r} may be the next frame's input {name!r}; if the model keeps state there, give "
        f"--state {output}:{name}"
        for name, output in _candidates(graph)
    )
    return replace(graph, notes=(*graph.notes, *notes))


def _pair(graph: Graph, name: str, output: str) -> State:
    sides = {}
    for role, title, specs in (("input", name, graph.inputs), ("output", output, graph.outputs)):
        names = {spec.name: spec for spec in specs}
        tensor = graph.aliases.get(title, title)
        if tensor not in names:
            raise ModelError(
                f"model {graph.name!r} has no {role} {tensor!r} for a state{near(tensor, names)}; it has "
                f"{', '.join(names)}"
            )
        sides[role] = names[tensor]
    if (sides["input"].shape, sides["input"].dtype) != (sides["output"].shape, sides["output"].dtype):
        raise ModelError(f"the state {sides['input']} differs from its output {sides['output']}")
    return State(sides["input"], sides["output"].name)


def _merge_groups(graph: Graph, state: State) -> Graph:
    """Return the graph with a state's readers and writer in one group."""
    name, output = state.input.name, state.output
    ends = [operator.group for operator in graph.operators if name in operator.inputs or output in operator.outputs]
    if not any(name in operator.inputs for operator in graph.operators):
        raise ModelError(f"no operator of model {graph.name!r} reads its state {name!r}; leave it out")
    if not any(output in operator.outputs for operator in graph.operators):
        raise ModelError(f"no operator of model {graph.name!r} makes the state {output!r}; leave it out")
    begin, merged = min(ends), max(ends) - min(ends)
    groups = (max(min(operator.group, begin), operator.group - merged) for operator in graph.operators)
    operators = (replace(operator, group=group) for operator, group in zip(graph.operators, groups, strict=True))
    return replace(graph, operators=tuple(operators))


def _candidates(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield inputs that look like states, each with its output."""
    outputs = {spec for spec in graph.outputs if spec.name not in {state.output for state in graph.states}}
    for spec in graph.frame_inputs if len(graph.inputs) > 1 else ():
        kind = _stem(spec.name), spec.shape, spec.dtype
        alike = [other.name for other in outputs if kind[0] and (_stem(other.name), other.shape, other.dtype) == kind]
        if len(alike) == 1:
            yield spec.name, alike[0]


def _stem(name: str) -> str:
    """Return a name without what tells before from after, such as ``"h"`` of ``"hn"``."""
    stem = _WORDS.sub("", name.lower())
    return stem.removesuffix("n") if len(stem) > 1 else stem
