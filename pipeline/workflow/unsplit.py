"""Unsplit model: the baseline of stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor import precision
from pipeline.executor.build import compile_stage
from pipeline.executor.parity import run_stages
from pipeline.split import extract
from pipeline.split.graph import Graph


def outputs_of(
    graph: Graph, plan: Plan, frames: Sequence[Mapping[str, np.ndarray]], tensors: Iterable[TensorSpec] = ()
) -> list[dict[str, np.ndarray]]:
    """Compute outputs, and `tensors`, per frame; see `UnsplitModel`."""
    model = UnsplitModel(graph, plan, tensors)
    return [model.outputs(frame) for frame in frames]


class UnsplitModel:
    """Graph as one stage on a plan's first device.

    Beside the graph's outputs, it returns `tensors`, and what stages make that have a tolerance of their own.  The
    graph is compiled without tuning and without other numerics, which would be compared with themselves; for the same
    reason numbers of 16 bits are float32, unless rounding decides about something.
    """

    def __init__(self, graph: Graph, plan: Plan, tensors: Iterable[TensorSpec] = ()) -> None:
        # Without cuts there is one part.
        (part,) = extract.parts(graph, [])
        toleranced_specs = [
            spec for stage in plan.stages if stage.options.tolerance is not None for spec in stage.outputs
        ]
        part = replace(part, outputs=tuple(dict.fromkeys((*part.outputs, *toleranced_specs, *tensors))))
        device = _reference_device(plan)
        self._stage = StagePlan("unsplit", device.name, part.inputs, part.outputs)
        module = extract.module(part)
        if precision.is_widely_comparable(module) and (widened_module := precision.widen(module)) is not None:
            module = widened_module
            # The same numbers in more bits: only sums and results have other rounding errors.
            inputs, outputs = (
                tuple(replace(spec, dtype="float32") if spec.dtype in precision.NARROW else spec for spec in specs)
                for specs in (part.inputs, part.outputs)
            )
            self._stage = replace(self._stage, inputs=inputs, outputs=outputs)
        # As many cores as the first stage has, so that both share what is compiled once.
        self._code = compile_stage(module, device, max(1, len(plan.stages[0].cores_of(0))))
        # The code has copies of the weights; those of the graph would be in memory for nothing.
        del module
        graph.release()
        self._board = Board("unsplit", (device,))
        # An input may be an output, too, which no stage makes.
        self._names = [spec.name for spec in (*graph.outputs, *part.outputs)]

    def outputs(self, frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute the outputs for a frame, by name."""
        widened = {spec.name: frame[spec.name].astype(spec.dtype, copy=False) for spec in self._stage.inputs}
        tensors = run_stages(self._board, [(self._stage, self._code)], {**frame, **widened})
        return {name: tensors[name] for name in self._names}


def _reference_device(plan: Plan) -> Device:
    """Return the first stage's device, or this processor for other runtimes."""
    device = plan.board.device(plan.stages[0].device)
    return Device("cpu") if device.capabilities.model_format else device
