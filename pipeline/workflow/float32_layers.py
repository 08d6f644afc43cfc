"""Float32 layers: products that stay in float32 where others have 16 bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.numerics import Numerics
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.products import constant_weights, end_products, products
from pipeline.workflow.unsplit import UnsplitModel


def with_ends(graph: Graph, plan: Plan, numerics: Numerics) -> Plan:
    """Return the plan with the graph's first and last products in float32, where others are narrow.

    Inputs and results have few values next to what lies between, so that these products are cheap, and their errors
    show the most. Stages with layers of their own keep them.
    """
    ends = end_products(graph)
    return _extend(plan, numerics, ends, {stage.name for stage in plan.stages if stage.options.float32_layers is None})


def widen(graph: Graph, plan: Plan, numerics: Numerics, frame: Mapping[str, np.ndarray]) -> Plan | None:
    """Return the plan with twice as many layers in float32, by their errors; None if there are no more."""
    names = {stage.name for stage in plan.stages}
    layers = [call.outputs[0] for call in products(graph)]
    everything = _extend(plan, numerics, layers, names)
    if everything == plan:
        return None
    present = {name for stage in plan.stages for name in stage.options.float32_layers or ()}
    errors = own_errors(graph, plan, frame)
    # What has no constant weights is measured by nothing, and goes first.
    ranked = sorted((name for name in layers if name not in present), key=lambda name: -errors.get(name, np.inf))
    wider = _extend(plan, numerics, ranked[: max(1, len(present))], names)
    # The first ones may be in stages that are not narrow.
    return wider if wider != plan else everything


def own_errors(graph: Graph, plan: Plan, frame: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return each layer's error where its products are rounded, relative to its largest value, in units of rounding.

    Rounding errors of products are independent, so that their variances add up: the sum over channels of the mean
    square of the data times the sum of the squares of the weights.
    """
    calls = {call.outputs[0]: call for call in products(graph) if constant_weights(call) is not None}
    names = {name for call in calls.values() for name in (call.inputs[0], call.outputs[0])}
    tensors = UnsplitModel(graph, plan, [graph.tensors[name] for name in sorted(names)]).outputs(frame)
    return {name: _own_error(call, tensors[call.inputs[0]], tensors[name]) for name, call in calls.items()}


def _own_error(call: Operator, data: np.ndarray, result: np.ndarray) -> float:
    weights = np.square(np.asarray(constant_weights(call), np.float64))
    attributes = call.lines[0].value.attrs
    layout = str(getattr(attributes, "data_layout", ""))
    axis = layout.index("C") if layout else data.ndim - 1
    squares = np.square(data.astype(np.float64)).mean(axis=tuple(a for a in range(data.ndim) if a != axis))
    if layout:
        kernel = str(attributes.kernel_layout)
        per_channel = weights.sum(axis=tuple(kernel.index(name) for name in kernel if name not in "OI"))
        per_channel = per_channel if kernel.index("O") < kernel.index("I") else per_channel.T
        groups = int(attributes.groups)
        parts = zip(np.split(per_channel, groups), np.split(squares, groups), strict=True)
        variances = np.concatenate([part @ channels for part, channels in parts])
    else:
        variances = squares @ weights
    largest = float(np.abs(result).max(initial=0.0))
    return float(np.sqrt(variances.max())) / largest if largest else 0.0


def _extend(plan: Plan, numerics: Numerics, layers: Sequence[str], names: Collection[str]) -> Plan:
    """Return the plan with more layers in float32 in some stages, where these are narrow."""

    def extend(stage: StagePlan) -> StagePlan:
        if stage.name not in names or numerics.of_stage(stage.options).precision.startswith("float32"):
            return stage
        present = stage.options.float32_layers or ()
        more = [name for name in layers if name not in present]
        return replace(stage, options=replace(stage.options, float32_layers=(*present, *more)))

    return replace(plan, stages=tuple(map(extend, plan.stages)))
