"""The unsplit model, which stages are compared with."""

from __future__ import annotations

import numpy as np

from pipeline.executor.build import compile_stage, random_frame, through
from pipeline.plans import Plan, StagePlan
from pipeline.split import extract
from pipeline.split.graph import Graph


def outputs(graph: Graph, plan: Plan, seed: int) -> dict[str, np.ndarray]:
    """Return what a graph makes of a random frame, as one stage on the device of a plan's first stage.

    It is compiled without tuning and without other numerics, which would be compared with themselves.
    """
    (part,) = extract.parts(graph, [])
    whole = StagePlan("unsplit", plan.stages[0].device, part.inputs, part.outputs)
    code = compile_stage(extract.module(part), plan.board.device(whole.device))
    graph.release()
    made = through(plan.board, [(whole, code)], random_frame(graph.inputs, seed))
    return {spec.name: made[spec.name] for spec in graph.outputs}
