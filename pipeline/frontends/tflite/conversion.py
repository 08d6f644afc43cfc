"""TFLite graph -> Relax module, with islands for LiteRT."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.core.packed_model import LITERT
from pipeline.core.packed_value import CAPACITY
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.plan.state import State
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.frontends.fallback import Conversion
from pipeline.frontends.tflite import operators
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator
from pipeline.frontends.tflite.importer import IslandNode, TfliteImporter
from pipeline.frontends.tflite.islands import STATE_KINDS, replace_by_islands
from pipeline.frontends.tflite.probing import check_models
from pipeline.model.imported_model import ImportedModel, Island


def convert(path: Path, graph: TfliteGraph, *, fallback: bool) -> ImportedModel:
    """Return a model in Relax, with islands for inexact operators.

    Raises `ModelError` if it uses what neither TVM nor LiteRT has; without `fallback`, what TVM has not.

    `fallback`: False lets TVM's converters also take operators that they compute in another way.
    """
    notes = _pack_ends(graph)
    if notes and not fallback:
        raise ModelError(
            f"{str(path)!r}: {notes[0]}, which only LiteRT takes; allow the fallback, for which the extra 'litert' has "
            "to be installed, or take it off the model"
        )
    live_operators = _live(graph)
    reasons = _objections(graph, live_operators, approximate=not fallback) | _at_packed_ends(live_operators)
    reasons |= _before_rounding(live_operators, reasons) if fallback else {}
    model = _TfliteConversion(path, graph, live_operators, fallback=fallback).run(reasons)
    return replace(model, notes=tuple(f"{note}; frames carry it as at most {CAPACITY} bytes" for note in notes))


class _TfliteConversion(Conversion):
    def __init__(self, path: Path, graph: TfliteGraph, live_operators: Sequence[Any], *, fallback: bool) -> None:
        super().__init__(repr(str(path)), live_operators, LITERT, fallback=fallback)
        self._path, self._graph = path, graph

    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        nodes, islands = replace_by_islands(self._graph, self.operators, reasons)
        importer = TfliteImporter(self._graph)
        module = importer.run(nodes, approximate=not self.fallback)
        model = ImportedModel(
            name=self._path.stem,
            module=module,
            outputs=tuple(self._graph.output_names),
            names=importer.names,
            operators=importer.operators,
            islands=tuple(islands),
            quantizations=_quantizations(self._graph),
            states=tuple(_states(self._graph)),
        )
        packed_models = {node.outputs[0].name: node.model for node in nodes if isinstance(node, IslandNode)}
        return model, [packed_models[island.tensor] for island in islands]

    def form(self, operator: TfliteOperator) -> tuple[Any, ...]:
        tensors = [None if tensor is None else (tensor.dtype, len(tensor.shape)) for tensor in operator.inputs]
        return operator.kind, *tensors

    def describe(self, operator: TfliteOperator, cause: str) -> str:
        return f"{operator}: {cause}" if cause else str(operator)

    def suspects(self, island: Island) -> Sequence[str]:
        return [name for name in island.operators if name.startswith("CUSTOM")] or island.operators

    def check_islands(self, packed_models: Sequence[bytes]) -> None:
        check_models(packed_models)


def _pack_ends(graph: TfliteGraph) -> list[str]:
    """Pack inputs and outputs without fixed shapes; return remarks."""
    notes = []
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            if tensor.dtype == "string":
                tensor.packed_because = "holds strings"
            elif tensor.is_open:
                tensor.packed_because = "has a shape that depends on values"
            if tensor.packed_because:
                notes.append(f"{role} {tensor.name!r} {tensor.packed_because}")
    return notes


def _at_packed_ends(live_operators: Sequence[TfliteOperator]) -> dict[int, str]:
    """Return operators on packed inputs and outputs: LiteRT's."""
    return {
        number: f"{tensor.name!r} {tensor.packed_because}"
        for number, operator in enumerate(live_operators)
        for tensor in (*operator.operands, *operator.outputs)
        if tensor.packed_because
    }


def _quantizations(graph: TfliteGraph) -> tuple[Quantization, ...]:
    pairs = zip(graph.output_names, (tensor.quantization for tensor in graph.outputs), strict=True)
    outputs = (replace(quantization, tensor=name) for name, quantization in pairs if quantization)
    return *(quantization for tensor in graph.inputs if (quantization := tensor.quantization)), *outputs


def _states(graph: TfliteGraph) -> Iterator[State]:
    count = len(graph.first_values)
    for tensor, output, value in zip(
        graph.inputs[-count:], graph.output_names[-count:], graph.first_values, strict=False
    ):
        yield State.of(TensorSpec(tensor.name, tensor.shape, tensor.dtype), output, value)


def _live(graph: TfliteGraph) -> list[TfliteOperator]:
    """Return the operators behind outputs and kept state."""
    needed = {tensor.number for tensor in graph.outputs}
    live_operators = []
    for operator in reversed(graph.operators):
        computed = {tensor.number for tensor in operator.outputs if not tensor.is_constant}
        if computed & needed or operator.kind in STATE_KINDS:
            needed.update(tensor.number for tensor in operator.operands)
            live_operators.append(operator)
    return live_operators[::-1]


def _objections(
    graph: TfliteGraph,
    live_operators: Sequence[TfliteOperator],
    *,
    approximate: bool,
) -> dict[int, str]:
    """Return the positions of unconvertible operators, with reasons."""
    importer = TfliteImporter(graph)
    choices = [operators.choose(importer, operator, approximate=approximate) for operator in live_operators]
    return {number: choice for number, choice in enumerate(choices) if isinstance(choice, str)}


def _before_rounding(live_operators: Sequence[TfliteOperator], objections: Collection[int]) -> dict[int, str]:
    """Return the operators before a quantisation of each frame by LiteRT.

    Such a quantisation has the scale of the largest number and coarse steps: a difference in the last bit becomes one
    of percents.
    """
    needed: set[int] = set()
    reasons = {}
    for number, operator in reversed(list(enumerate(live_operators))):
        if needed.intersection(tensor.number for tensor in operator.outputs):
            reasons[number] = "what it makes is quantised anew for each frame"
        if number in reasons or (operator.quantizes_anew and number in objections):
            needed.update(tensor.number for tensor in operator.operands if not tensor.is_constant)
    return reasons
