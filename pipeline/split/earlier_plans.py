"""Earlier plans: cuts inside a model's operator move between operators.

An operator on quantised numbers was a dozen operators of the graph once, called after its tensor and a kind, such as
``conv:astype3``.  It is one now, so that plans of that time name operators which are no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import PlanError
from pipeline.split.cuts import enclosing_operator, operators_by_name
from pipeline.split.graph import Graph
from pipeline.split.orders import as_ordered
from pipeline.split.stage_parts import at_other_size
from pipeline.split.unfused import as_planned

_NARROW = ("int8", "uint8", "int16", "uint16")
"""Dtypes of a product's quantised operands."""


def update_plan(plan: Plan, graph: Graph) -> Plan:
    """Return a plan with the graph's operators for their former parts.

    Plans without such parts are returned as they are.  A cut inside of an operator moves to its nearer end: in front of
    it where narrow integers cross, which only a product's operands are, else behind it. Raises `PlanError` if a cut has
    no legal one beside it; the message names the nearest.
    """
    numbers = operators_by_name(graph)
    names = {name for unit in plan.units for name in (*unit.operators, *(spec.name for spec in unit.outputs))}
    owners = {name: enclosing_operator(numbers, name) for name in names - numbers.keys()}
    is_earlier = any(owners.get(name) for unit in plan.units for name in unit.operators)
    if plan.digest == graph.digest or not is_earlier or (plan.inputs, plan.outputs) != (graph.inputs, graph.outputs):
        return plan
    # 1. Order and divided groups, of which the last part of an operator has its name.
    operators = {operator.name for operator in graph.operators}
    order, unfused = (tuple(name for name in former if name in operators) for former in (plan.order, plan.unfused))
    plan = replace(plan, order=order, unfused=unfused)
    ordered = as_planned(as_ordered(graph, plan), plan)
    # 2. Positions of the cuts, and the operators between them.
    edges = [0, *_positions(ordered, plan, owners), len(ordered.operators)]
    ends = iter([(ordered.operators[begin].name, ordered.operators[end - 1].name) for begin, end in pairwise(edges)])
    stages = []
    for stage in plan.stages:
        steps = tuple(replace(step, operators=next(ends)) for step in stage.steps)
        operators_of_stage = (steps[0].operators[0], steps[-1].operators[-1]) if steps else _next_ends(stage, ends)
        stages.append(replace(stage, steps=steps, operators=operators_of_stage))
    # 3. What travels there now.
    return at_other_size(replace(plan, stages=tuple(stages)), graph)


def _next_ends(stage: StagePlan, ends: Iterator[tuple[str, str]]) -> tuple[str, ...]:
    return next(ends) if stage.operators else ()


def _positions(graph: Graph, plan: Plan, owners: Mapping[str, str]) -> list[int]:
    """Return legal positions for the cuts of a plan."""
    numbers, legal = operators_by_name(graph), graph.group_ends[:-1]
    positions: list[int] = []
    for unit in [unit for unit in plan.units if unit.operators][:-1]:
        candidates = _candidates(numbers, unit, owners)
        beyond = [position for position in legal if position > max(positions, default=0)]
        position = next((candidate for candidate in candidates if candidate in beyond), None)
        if position is None:
            text = f"the plan cuts behind {unit.operators[-1]!r}, where {plan.model!r} has no cut"
            if candidates and beyond:
                nearest = min(beyond, key=lambda position: abs(position - candidates[0]))
                text += f"; the nearest is behind {graph.operators[nearest - 1].name!r}"
            raise PlanError(f"{text}; plan again")
        positions.append(position)
    return positions


def _candidates(numbers: Mapping[str, int], unit: StagePlan, owners: Mapping[str, str]) -> list[int]:
    """Return the possible ends of a unit, the best first."""
    name = unit.operators[-1]
    operator = owners.get(name, name)
    if operator not in numbers:
        return []
    in_front, end = numbers[operator], numbers[operator] + 1
    if operator == name:
        return [end]
    crossing = [spec for spec in unit.outputs if owners.get(spec.name) == operator]
    return [in_front, end] if any(spec.dtype in _NARROW for spec in crossing) else [end, in_front]
