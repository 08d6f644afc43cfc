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

from pipeline.errors import ModelError, reason
from pipeline.frontends.onnx import narrow_types, packed_ends
from pipeline.frontends.onnx.experimental import replace_experimental
from pipeline.frontends.onnx.external_data import ExternalData
from pipeline.frontends.onnx.importer import UNKNOWN, NodeRefused, OnnxImporter, supported_kinds, why_unsupported
from pipeline.frontends.onnx.islands import DOMAIN, replace_by_islands
from pipeline.frontends.onnx.narrow_types import uses_narrow_types
from pipeline.frontends.onnx.packed_ends import model_inputs
from pipeline.frontends.onnx.reference import PACKAGE, literal_options, open_session
from pipeline.frontends.onnx.runtime_types import state_types
from pipeline.frontends.onnx.simplification.functions import OLDEST_OPSET
from pipeline.frontends.onnx.simplification.tensors import opset, tensors_read
from pipeline.model.imported_model import ImportedModel, Island
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed

MOST_ATTEMPTS = 50
"""To import a model.  Nodes that are alike fail together, so that even exports of language models need a dozen."""


LONGEST_S = 120
"""For a model to be simplified; one of ten thousand operators takes ten."""

# The folder comes first, so that Python finds the modules without those that import TVM.
_SIMPLIFY = "import sys; sys.path.insert(0, sys.argv.pop(1)); from simplification.program import main; sys.exit(main())"

# By definition a loop, and what is different each time.
_LEFT_WHOLE = {"Bernoulli", "SequenceMap"}

# Of an island, in a message.
MOST_NAMED = 5


def convert(path: Path, model: Any, data: ExternalData, *, fixed: bool, fallback: bool) -> ImportedModel:
    """Return a model in Relax; what cannot be imported is in islands, if `fallback` says so.

    Whether TVM can import a node shows only when it tries.  A model is first imported as it is; if that fails it is
    brought into plain terms, and then imported with more islands after each failure.

    Parameters
    ----------
    path : Path
        The model's file, for messages and its name.
    model : onnx.ModelProto
    data : ExternalData
        The tensors that the model does not hold itself.
    fixed : bool
        All extents are numbers, or have to become such.
    fallback : bool

    Raises
    ------
    ModelError
        If it uses what neither TVM nor ONNX Runtime has; without `fallback`, what TVM has not.
    """
    inputs = model_inputs(model)
    if _is_plain(model) and not packed_ends.reasons(model.graph, inputs) and not uses_narrow_types(model.graph):
        with contextlib.suppress(NodeRefused):
            return _import(path, model, data, fixed=fixed)
    model = simplify(path, replace_experimental(model))
    # What these are tells more.
    if fallback and fixed and state_types(model):
        model = simplify(path, model)
    reasons = packed_ends.reasons(model.graph, model_inputs(model)) | narrow_types.reasons(model.graph)
    reasons |= _find_unsupported(model.graph)
    if reasons and not fallback:
        raise _refusal(path, model.graph, reasons)
    open_outputs: set[str] = set()
    for _ in range(MOST_ATTEMPTS):
        candidate = onnx.ModelProto()
        candidate.CopyFrom(model)
        islands = replace_by_islands(candidate, reasons)
        notes = packed_ends.pack(candidate.graph, model_inputs(candidate), open_outputs)
        try:
            imported_model = _import(path, candidate, data, islands, fixed=fixed)
        except NodeRefused as error:
            refused = _refused_nodes(model.graph, error)
            values = packed_ends.outputs_of_unknown_shape(candidate.graph, error.result) - open_outputs
            if fallback and refused.keys() <= reasons.keys() and values:
                open_outputs |= values
                continue
            if fallback and refused.keys() <= reasons.keys():
                raise ModelError(
                    f"{str(path)!r}: {error.reason}, so that frames have no place for it; end the model before it"
                ) from error
            if not fallback:
                raise ModelError(f"{str(path)!r}: TVM cannot import {error.node}: {error.reason}") from error
            reasons |= refused
        else:
            _check_islands(path, candidate.graph, islands)
            return replace(imported_model, notes=tuple(notes))
    raise ModelError(f"{str(path)!r}: TVM cannot import operators of more than {MOST_ATTEMPTS} kinds")


def _is_plain(model: Any) -> bool:
    return not model.functions and opset(model) >= OLDEST_OPSET and not _find_unsupported(model.graph)


def simplify(path: Path, model: Any, kinds: Sequence[str] | None = None) -> Any:
    """Return the model in plain terms, see `pipeline.frontends.onnx.simplification`.

    Parameters
    ----------
    path : Path
    model : onnx.ModelProto
    kinds : sequence of str, optional
        Operators that are written out by others; by default those that cannot be imported as they are.

    Raises
    ------
    ModelError
        If it is damaged, or too old to be converted.
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
    """Return the operators without a converter that ONNX defines by others, and those of the model in such a form."""
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
    except NodeRefused as error:
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
    # Without what led to it: its frames hold the builder, which prints a warning whenever it dies unfinished, and here
    # nobody sees that.
    refusal.__cause__ = refusal.__context__ = None
    raise refusal.with_traceback(None)


def _check_islands(path: Path, graph: Any, islands: Sequence[Island]) -> None:
    nodes = {node.output[0]: node for node in graph.node if node.domain == DOMAIN}
    for island in islands:
        _check_island(path, nodes[island.tensor], island)


def _check_island(path: Path, node: Any, island: Island) -> None:
    """Raise `ModelError` if ONNX Runtime has not got an operator of an island either, such as a custom one."""
    try:
        open_session(onnx.ModelProto.FromString(node.attribute[0].s), literal_options())
    except Exception as error:  # it raises several unrelated types
        names = ", ".join(island.operators[:MOST_NAMED])
        raise ModelError(
            f"{str(path)!r} uses operators that neither TVM nor ONNX Runtime has: {names}: {reason(error, line=0)}"
        ) from error


def _find_unsupported(graph: Any) -> dict[int, str]:
    """Return the numbers of the nodes that cannot be imported, with the reasons."""
    read = {name for node in graph.node for name in tensors_read(node)} | {value.name for value in graph.output}
    return {number: cause for number, node in enumerate(graph.node) if (cause := why_unsupported(node, read))}


def _refused_nodes(graph: Any, error: NodeRefused) -> dict[int, str]:
    """Return the refused node, and those of its kind with equal attributes, unless only its operands are at fault."""
    refused = next((node for node in graph.node if error.result in node.output), None)
    if refused is None:
        return {}
    return {
        number: error.reason
        for number, node in enumerate(graph.node)
        if node == refused
        or (
            not error.depends_on_values
            and (node.op_type, node.domain) == (refused.op_type, refused.domain)
            and list(node.attribute) == list(refused.attribute)
        )
    }


def _refusal(path: Path, graph: Any, reasons: Mapping[int, str]) -> ModelError:
    complaints: dict[str, str] = {}
    for number, cause in reasons.items():
        node = graph.node[number]
        kind = f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)
        form = "" if cause == UNKNOWN else f" {cause}"
        complaints.setdefault(kind + form, f"{kind}{form} (node {node.name or node.output[0]!r})")
    command = install_command("onnxruntime")
    remedy = "" if is_installed(PACKAGE) else f"; ONNX Runtime computes them where it is installed: {command}"
    return ModelError(f"{str(path)!r} uses operators that are not supported: {'; '.join(complaints.values())}{remedy}")
