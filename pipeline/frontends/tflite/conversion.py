"""TFLite graph -> Relax module, with islands for what LiteRT has to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.core.packed_value import CAPACITY
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.frontends.tflite import operators
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator
from pipeline.frontends.tflite.importer import IslandNode, OperatorRefused, TfliteImporter
from pipeline.frontends.tflite.islands import STATE_KINDS, replace_by_islands
from pipeline.frontends.tflite.operators.converter import UNKNOWN
from pipeline.frontends.tflite.probing import ProbeFailed, check_models
from pipeline.frontends.tflite.reference import PACKAGE
from pipeline.model.imported_model import ImportedModel, Island
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed

MOST_ATTEMPTS = 50
"""To import a model: whether TVM can import an operator shows only when it tries, and those that are alike fail
together."""

# Of an island, in a message.
MOST_NAMED = 5


def convert(path: Path, graph: TfliteGraph, *, fallback: bool) -> ImportedModel:
    """Return a model in Relax; what is not converted to just what LiteRT computes is in islands, if `fallback`.

    Parameters
    ----------
    path : Path
        The model's file, for messages and its name.
    graph : TfliteGraph
    fallback : bool
        Otherwise TVM's converters also take what they compute in another way.

    Raises
    ------
    ModelError
        If it uses what neither TVM nor LiteRT has; without `fallback`, what TVM has not.
    """
    notes = _pack_ends(graph)
    if notes and not fallback:
        raise ModelError(
            f"{str(path)!r}: {notes[0]}, which only LiteRT takes; allow the fallback, for which the extra 'litert' has "
            "to be installed, or take it off the model"
        )
    live_operators = _live(graph)
    reasons = _objections(graph, live_operators, approximate=not fallback) | _at_packed_ends(live_operators)
    if reasons and not fallback:
        raise _refusal(path, live_operators, reasons)
    reasons |= _before_rounding(live_operators) if fallback else {}
    for _ in range(MOST_ATTEMPTS):
        nodes, islands = replace_by_islands(graph, live_operators, reasons)
        importer = TfliteImporter(graph)
        try:
            module = importer.run(nodes, approximate=not fallback)
        except OperatorRefused as error:
            refused = _alike(live_operators, error)
            if not fallback or refused.keys() <= reasons.keys():
                raise ModelError(f"{str(path)!r}: TVM cannot import {error.operator}: {error.reason}") from None
            reasons |= refused
        else:
            _check_islands(path, nodes, islands)
            return ImportedModel(
                name=path.stem,
                module=module,
                outputs=tuple(graph.output_names),
                names=importer.names,
                operators=importer.operators,
                islands=tuple(islands),
                quantizations=_quantizations(graph),
                notes=tuple(f"{note}; frames carry it as at most {CAPACITY} bytes" for note in notes),
            )
    raise ModelError(f"{str(path)!r}: TVM cannot import operators of more than {MOST_ATTEMPTS} kinds")


def _pack_ends(graph: TfliteGraph) -> list[str]:
    """Let frames carry what no tensor of a fixed shape holds as bytes, and return what is so, and why."""
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
    """Return the places of operators that read or make what frames carry as bytes: LiteRT computes these."""
    return {
        place: f"{tensor.name!r} {tensor.packed_because}"
        for place, operator in enumerate(live_operators)
        for tensor in (*operator.operands, *operator.outputs)
        if tensor.packed_because
    }


def _quantizations(graph: TfliteGraph) -> tuple[Quantization, ...]:
    pairs = zip(graph.output_names, (tensor.quantization for tensor in graph.outputs), strict=True)
    return tuple(replace(quantization, tensor=name) for name, quantization in pairs if quantization)


def _check_islands(path: Path, nodes: Sequence[TfliteOperator | IslandNode], islands: Sequence[Island]) -> None:
    """Raise `ModelError` if LiteRT has not got an operator of an island either, such as a custom one."""
    models = {node.outputs[0].name: node.model for node in nodes if isinstance(node, IslandNode)}
    try:
        check_models([models[island.tensor] for island in islands])
    except ProbeFailed as error:
        island = islands[error.number]
        custom_ones = [name for name in island.operators if name.startswith("CUSTOM")]
        names = ", ".join((custom_ones or island.operators)[:MOST_NAMED])
        raise ModelError(f"{str(path)!r} uses operators that neither TVM nor LiteRT has: {names}: {error}") from None


def _live(graph: TfliteGraph) -> list[TfliteOperator]:
    """Return the operators that an output depends on, or that keep something for the next frame."""
    needed = {tensor.number for tensor in graph.outputs}
    live_operators = []
    for operator in reversed(graph.operators):
        made = {tensor.number for tensor in operator.outputs if not tensor.is_constant}
        if made & needed or operator.kind in STATE_KINDS:
            needed.update(tensor.number for tensor in operator.operands)
            live_operators.append(operator)
    return live_operators[::-1]


def _objections(
    graph: TfliteGraph,
    live_operators: Sequence[TfliteOperator],
    *,
    approximate: bool,
) -> dict[int, str]:
    """Return the places of the operators that no converter takes, with the reasons."""
    importer = TfliteImporter(graph)
    choices = [operators.choose(importer, operator, approximate=approximate) for operator in live_operators]
    return {place: choice for place, choice in enumerate(choices) if isinstance(choice, str)}


def _before_rounding(live_operators: Sequence[TfliteOperator]) -> dict[int, str]:
    """Return the places of operators before those that quantise real numbers anew for each frame.

    Their scale is that of the largest number, and their steps are coarse: what differs in its last bit makes a
    difference of percents.
    """
    needed: set[int] = set()
    places = {}
    for place, operator in reversed(list(enumerate(live_operators))):
        if needed.intersection(tensor.number for tensor in operator.outputs):
            places[place] = "what it makes is quantised anew for each frame"
        if place in places or operator.quantizes_anew:
            needed.update(tensor.number for tensor in operator.operands if not tensor.is_constant)
    return places


def _alike(live_operators: Sequence[TfliteOperator], error: OperatorRefused) -> dict[int, str]:
    """Return the place of a refused operator, and those of its kind on tensors like its own, which would fail too."""
    form = _form(error.operator)
    return {place: error.reason for place, operator in enumerate(live_operators) if _form(operator) == form}


def _form(operator: TfliteOperator) -> tuple[Any, ...]:
    tensors = [None if tensor is None else (tensor.dtype, len(tensor.shape)) for tensor in operator.inputs]
    return operator.kind, *tensors


def _refusal(path: Path, live_operators: Sequence[TfliteOperator], reasons: Mapping[int, str]) -> ModelError:
    complaints: dict[str, str] = {}
    for place, cause in reasons.items():
        operator = live_operators[place]
        form = "" if cause == UNKNOWN else f": {cause}"
        complaints.setdefault(operator.kind + form, f"{operator}{form}")
    command = install_command("litert")
    remedy = "" if is_installed(PACKAGE) else f"; LiteRT computes them where it is installed: {command}"
    return ModelError(f"{str(path)!r} uses operators that are not supported: {'; '.join(complaints.values())}{remedy}")
