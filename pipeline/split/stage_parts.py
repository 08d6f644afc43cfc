"""Graph + plan -> parts of the plan's stages, checked against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise, zip_longest

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import PlanError
from pipeline.split import extract
from pipeline.split.cuts import resolve
from pipeline.split.extract import GraphPart
from pipeline.split.graph import Graph
from pipeline.split.orders import as_ordered
from pipeline.split.unfused import as_planned


def parts(graph: Graph, plan: Plan) -> list[GraphPart]:
    """Divide the graph into the plan's units, after a check.

    Raises `PlanError` if the plan belongs to another graph, or its stages or its order do not.
    """
    is_own = plan.digest == graph.digest
    graph = as_ordered(graph, plan) if is_own else graph
    positions = _positions(graph, plan.units)
    if not is_own or positions is None:
        raise PlanError(
            f"the plan is for another model ({plan.model!r}) than {graph.name!r}, or for another version of it; "
            "plan again"
        )
    # A plan's file may have been changed by hand.
    resolve(as_planned(graph, plan), positions)
    graph_parts = _matching_parts(graph, plan.stages)
    for stage, part in zip(plan.stages, graph_parts, strict=True):
        _check_state(graph, stage, part)
    return graph_parts if plan.units == plan.stages else _matching_parts(graph, plan.units)


def _matching_parts(graph: Graph, stages: Sequence[StagePlan]) -> list[GraphPart]:
    result = []
    for stage, part in _match(graph, stages):
        # Operators alone are not enough: an edited plan may name tensors that the part neither reads nor makes.
        if part is None or (stage.inputs, stage.outputs) != (part.inputs, part.outputs):
            raise PlanError(f"stage {stage.name!r} is not what its operators make of {graph.name!r}; plan again")
        result.append(part)
    return result


def _check_state(graph: Graph, stage: StagePlan, part: GraphPart) -> None:
    """Refuse replicas of a stage with state."""
    names = {line.name for operator in part.operators for line in operator.lines}
    for island in graph.islands:
        if stage.replicas > 1 and island.keeps_state and island.tensor in names:
            raise PlanError(
                f"stage {stage.name!r} keeps state from one frame to the next ({island.operators[0]}), but has "
                f"{stage.replicas} replicas; give it one"
            )


def at_other_size(plan: Plan, graph: Graph) -> Plan:
    """Return a plan for another size with `graph`'s tensors and digest.

    Raises `PlanError` if the model has not the same operators at both sizes.
    """
    graph = as_ordered(graph, plan)
    # In the order of the units, as which the steps of a stage come.
    unit_parts = iter(_parts_at_size(graph, plan.units))
    stages = []
    for stage, part in zip(plan.stages, _parts_at_size(graph, plan.stages), strict=True):
        step_parts = list(islice(unit_parts, len(stage.units)))
        steps = tuple(
            replace(step, inputs=step_part.inputs, outputs=step_part.outputs)
            for step, step_part in zip(stage.steps, step_parts, strict=False)
        )
        stages.append(replace(stage, inputs=part.inputs, outputs=part.outputs, steps=steps))
    inputs, outputs = graph.frame_inputs, graph.frame_outputs
    return replace(plan, digest=graph.digest, inputs=inputs, outputs=outputs, stages=tuple(stages), states=graph.states)


def _parts_at_size(graph: Graph, stages: Sequence[StagePlan]) -> list[GraphPart]:
    parts = []
    for stage, part in _match(graph, stages):
        if part is None:
            raise PlanError(
                f"{graph.name!r} has not the same operators at each size: stage {stage.name!r} cannot be cut out; "
                "build a bundle of its own for each size"
            )
        parts.append(part)
    return parts


def _match(graph: Graph, stages: Sequence[StagePlan]) -> Iterator[tuple[StagePlan, GraphPart | None]]:
    """Yield each stage with its part, or None."""
    positions = _positions(graph, stages)
    edges = [0, *(positions or ()), len(graph.operators)]
    divisible = positions is not None and all(begin < end for begin, end in pairwise(edges))
    graph_parts = extract.parts(graph, edges[1:-1]) if divisible else []
    # There are fewer parts than stages where one has no operators.
    for stage, part in zip_longest(stages, graph_parts):
        ends = () if part is None else (part.operators[0].name, part.operators[-1].name)
        yield stage, part if stage.operators == ends else None


def _positions(graph: Graph, stages: Sequence[StagePlan]) -> list[int] | None:
    """Return the cuts between stages; None if an operator is missing."""
    ends: Mapping[str, int] = {operator.name: index + 1 for index, operator in enumerate(graph.operators)}
    if any(name not in ends for stage in stages for name in stage.operators):
        return None
    return [ends[stage.operators[-1]] for stage in stages[:-1] if stage.operators]
