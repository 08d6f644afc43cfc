"""Graph + plan -> the parts that the plan's stages are."""

from __future__ import annotations

from itertools import zip_longest

from pipeline.errors import PlanError
from pipeline.plans import Plan
from pipeline.split import extract
from pipeline.split.cuts import resolve
from pipeline.split.extract import Part
from pipeline.split.graph import Graph


def parts(graph: Graph, plan: Plan) -> list[Part]:
    """Divide the graph as the plan says, after checking that it is the plan's own.

    Raises
    ------
    PlanError
        If the plan belongs to another graph, or its stages do not.
    """
    index = {operator.name: number for number, operator in enumerate(graph.operators)}
    names = [name for stage in plan.stages for name in stage.operators]
    if plan.digest != graph.digest or any(name not in index for name in names):
        raise PlanError(
            f"the plan is for another model ({plan.model!r}) than {graph.name!r}, or for another version of it; "
            "plan again"
        )
    last = [stage.operators[-1] for stage in plan.stages[:-1] if stage.operators]
    found = extract.parts(graph, resolve(graph, [index[name] + 1 for name in last]))
    for stage, part in zip_longest(plan.stages, found):
        ends = () if part is None else (part.operators[0].name, part.operators[-1].name)
        if part is None or (stage.operators, stage.inputs, stage.outputs) != (ends, part.inputs, part.outputs):
            raise PlanError(f"stage {stage.name!r} is not what its operators make of {graph.name!r}; plan again")
    return found
