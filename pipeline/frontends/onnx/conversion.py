"""ONNX model -> Relax module, with islands where TVM's importer fails."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from pipeline.core.packed_model import ONNX_RUNTIME
from pipeline.errors import ModelError, reason
from pipeline.frontends.fallback import Conversion, IslandRefused, OperatorRefused, without_frames
from pipeline.frontends.onnx import packed_ends
from pipeline.frontends.onnx.experimental import replace_experimental
from pipeline.frontends.onnx.external_data import ExternalData
from pipeline.frontends.onnx.importer import OnnxImporter, supported_kinds, why_unsupported
from pipeline.frontends.onnx.islands import DOMAIN, replace_by_islands
from pipeline.frontends.onnx.packed_ends import model_inputs
from pipeline.frontends.onnx.reference import literal_options, open_session
from pipeline.frontends.onnx.runtime_types import state_types
from pipeline.frontends.onnx.simplification.functions import OLDEST_OPSET
from pipeline.frontends.onnx.simplification.tensors import NARROW_TYPES, opset, tensor_types, tensors_read
from pipeline.model.imported_model import ImportedModel, Island

LONGEST_S = 120
"""For a model to be simplified; one of ten thousand operators takes ten."""

# The folder comes first, so that Python finds the modules without those that import TVM.
_SIMPLIFY = "import sys; sys.path.insert(0, sys.argv.pop(1)); from simplification.program import main; sys.exit(main())"

# By definition a loop, and what is different each time.
_LEFT_WHOLE = {"Bernoulli", "SequenceMap"}


def convert(path: Path, model: Any, data: ExternalData, *, fixed: bool, fallback: bool) -> ImportedModel:
    """Return a model in Relax, with islands if `fallback` allows.

    Whether TVM can import a node shows only when it tries.  A model is first imported as it is; if that fails it is
    brought into plain terms, and then imported with more islands after each failure. Raises `ModelError` if it uses
    what neither TVM nor ONNX Runtime has; without `fallback`, what TVM has not.

    `fixed` is True if all extents are numbers, or have to become such.
    """
    inputs = model_inputs(model)
    if _is_plain(model) and not packed_ends.reasons(model.graph, inputs) and not uses_narrow_types(model.graph):
        with contextlib.suppress(OperatorRefused):
            return _import(path, model, data, fixed=fixed)
    model = simplify(path, replace_experimental(model))
    # What these are tells more.
    if fallback and fixed and state_types(model):
        model = simplify(path, model)
    reasons = packed_ends.reasons(model.graph, model_inputs(model)) | narrow_type_reasons(model.graph)
    reasons |= _find_unsupported(model.graph)
    return _OnnxConversion(path, model, data, fixed=fixed, fallback=fallback).run(reasons)


class _OnnxConversion(Conversion):
    def __init__(self, path: Path, model: Any, data: ExternalData, *, fixed: bool, fallback: bool) -> None:
        super().__init__(repr(str(path)), model.graph.node, ONNX_RUNTIME, fallback=fallback)
        self._path, self._model, self._data, self._fixed = path, model, data, fixed
        self._open_outputs: set[str] = set()

    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        while True:
            candidate = onnx.ModelProto()
            candidate.CopyFrom(self._model)
            islands = replace_by_islands(candidate, reasons)
            notes = packed_ends.pack(candidate.graph, model_inputs(candidate), self._open_outputs)
            try:
                model = _import(self._path, candidate, self._data, islands, fixed=self._fixed)
            except OperatorRefused as error:
                is_island, operator = error.operator.domain == DOMAIN, error.operator
                # The model's own node, of which this one is a copy, or maybe stands for.
                error.operator = next(node for node in self.operators if operator.output[0] in node.output)
                open_values = packed_ends.outputs_of_unknown_shape(operator, candidate.graph) - self._open_outputs
                if not is_island or not open_values:
                    raise
                self._open_outputs |= open_values
                continue
            nodes = {node.output[0]: node for node in candidate.graph.node if node.domain == DOMAIN}
            packed_models = [nodes[island.tensor].attribute[0].s for island in islands]
            return replace(model, notes=tuple(notes)), packed_models

    def form(self, operator: Any) -> tuple[Any, ...]:
        kind = f"{operator.domain}.{operator.op_type}" if operator.domain else str(operator.op_type)
        return kind, list(operator.attribute)

    def describe(self, operator: Any, cause: str) -> str:
        kind, _ = self.form(operator)
        return f"{kind}{cause and ' '}{cause} (node {operator.name or operator.output[0]!r})"

    def check_islands(self, packed_models: Sequence[bytes]) -> None:
        for number, model in enumerate(packed_models):
            try:
                open_session(onnx.ModelProto.FromString(model), literal_options())
            except Exception as error:  # noqa: PERF203 - it raises several unrelated types
                raise IslandRefused(reason(error, line=0), number) from error


def _is_plain(model: Any) -> bool:
    return not model.functions and opset(model) >= OLDEST_OPSET and not _find_unsupported(model.graph)


def simplify(path: Path, model: Any, kinds: Sequence[str] | None = None) -> Any:
    """Return the model in plain terms, see `pipeline.frontends.onnx.simplification`.

    Raises `ModelError` if it is damaged, or too old to be converted.

    `kinds`: operators that are written out by others; by default those that cannot be imported as they are.
    """
    written_out = _composite_kinds(model) if kinds is None else kinds
    command = [sys.executable, "-c", _SIMPLIFY, str(Path(__file__).parent), *written_out]
    try:
        result = subprocess.run(  # noqa: S603 - this Python and a file of ours
            command, input=model.SerializeToString(), capture_output=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"{str(path)!r}: its shapes are not inferred within {LONGEST_S} s; export it again") from None
    if result.returncode:
        # Nothing is said when the package aborts.
        lines = result.stderr.decode(errors="replace").strip().splitlines() or ["its shapes cannot be inferred"]
        raise ModelError(f"{str(path)!r} is not a valid ONNX model: {lines[-1]}; export it again")
    return onnx.ModelProto.FromString(result.stdout)


def _composite_kinds(model: Any) -> list[str]:
    """Return the composite operators without a converter, the model's included."""
    schemas = onnx.defs.get_all_schemas()
    functions = {schema.name for schema in schemas if schema.domain == "" and _has_definition(schema)}
    forms = {model.graph.node[number].op_type for number in _find_unsupported(model.graph)}
    return sorted((functions - supported_kinds() - _LEFT_WHOLE) | (functions & forms))


def _has_definition(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def _import(
    path: Path, model: Any, data: ExternalData, islands: Sequence[Island] = (), *, fixed: bool
) -> ImportedModel:
    importer = OnnxImporter(model.graph, data, fixed=fixed)
    refusal: Exception
    try:
        module = importer.from_onnx(model.graph, opset(model))
    except OperatorRefused as error:
        refusal = error
    except Exception as error:  # noqa: BLE001 - TVM raises whatever it meets before and behind the nodes
        refusal = ModelError(f"{str(path)!r}: TVM cannot import {importer.current_node}: {reason(error)}")
    else:
        return ImportedModel(
            name=path.stem,
            module=module,
            outputs=tuple(value.name for value in model.graph.output),
            names=importer.names,
            operators=importer.operators,
            aliases=importer.aliases,
            parameters=data,
            islands=tuple(islands),
        )
    raise without_frames(refusal)


def _find_unsupported(graph: Any) -> dict[int, str]:
    """Return the numbers of unimportable nodes, with reasons."""
    read = {name for node in graph.node for name in tensors_read(node)} | {value.name for value in graph.output}
    return {number: cause for number, node in enumerate(graph.node) if (cause := why_unsupported(node, read))}


def uses_narrow_types(graph: Any) -> bool:
    """Look for narrow types in attributes and constants."""
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    # Integers alone: of other attributes the field is 0, as is an undefined type.
    return any(
        attribute.i in NARROW_TYPES for attribute in attributes if attribute.name in ("to", "output_dtype")
    ) or any(tensor.data_type in NARROW_TYPES for tensor in graph.initializer)


def narrow_type_reasons(graph: Any) -> dict[int, str]:
    """Return the nodes with computed narrow tensors, with reasons.

    Constants are none of these: the importer reads their values.
    """
    texts = {
        name: f"{name!r} is of {NARROW_TYPES[value.tensor_type.elem_type]}, which no kernel computes with"
        for name, value in tensor_types(graph).items()
        if value.tensor_type.elem_type in NARROW_TYPES
    }
    computed = {name for node in graph.node if node.op_type != "Constant" for name in node.output}
    computed |= {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    return {
        number: texts[name]
        for number, node in enumerate(graph.node)
        for name in (*node.input, *node.output)
        if name in texts and name in computed
    }
