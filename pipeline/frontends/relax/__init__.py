"""Relax modules: read from memory or JSON, written as JSON.

TVM's own tools read the JSON as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import relax

from pipeline.core.card_file import CARD_KEY, encode_card
from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError, reason
from pipeline.frontends.relax import entry, schema
from pipeline.frontends.relay.params import Params, load_parameters
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes import bindings
from pipeline.model.passes.naming import tensor_names, unique
from pipeline.model.passes.normalise import clean
from pipeline.system.files import write_atomically
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

# Kernels count elements in 32 bits.
_MOST_ELEMENTS = 2**31

_ATTRIBUTE = "soc_pipeline"
"""Attribute of a module with the names beyond its variables'."""


class _StoredNames(msgspec.Struct, forbid_unknown_fields=True):
    """Names as in `ImportedModel`, and its card; `tensors` are variables named after the model's."""

    model: str
    tensors: list[str]
    outputs: list[str]
    operators: dict[str, str]
    aliases: dict[str, str]
    card: str = ""


def save(model: ImportedModel, path: Path) -> None:
    """Clean up a model and write it; `load` finds all names."""
    with compiler_lock:
        # Before the clean-up, which renames what it makes of several operators.
        tensors = sorted(tensor_names(model))
        model = clean(model)
        names = _StoredNames(model.name, tensors, list(model.outputs), dict(model.operators), dict(model.aliases))
        names.card = encode_card(model.card) if model.card else ""
        # An attribute of the module: TVM's own tools keep it, and show it.
        module = model.module.with_attr(_ATTRIBUTE, msgspec.json.encode(names).decode())
        text = tvm.ir.save_json(module)
    # A reader never sees half a file, and the old one stays if the disk is full.
    write_atomically(path, str(text).encode())


def load(path: Path, shapes: Shapes, params: Params | None = None) -> ImportedModel:
    """Read a Relax module from the JSON of ``tvm.ir.save_json``.

    Raises `ModelError` if it is damaged, holds what is not allowed in a file, or has no function that is the model.
    """
    try:
        text = path.read_text(encoding="utf-8")
        with compiler_lock:
            module = quietly(lambda: schema.parse(text))
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{str(path)!r} is damaged: it is no text in UTF-8") from None
    except ValueError as error:
        raise ModelError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(module, tvm.IRModule):
        raise ModelError(f"{str(path)!r} holds no module, but a {type(module).__name__}")
    return from_object(module, shapes, params, path.stem, repr(str(path)))


def from_object(
    module: Any, shapes: Shapes, params: Params | None = None, name: str = "model", file: str = "the module"
) -> ImportedModel:
    """Return a Relax module as it goes through the splitter.

    Raises `ModelError` if no function is the model, or it uses what is not supported. `shapes` are extents for inputs
    that the module leaves open; parameters of the function without a value in `params` are inputs of the model, as for
    Relay.
    """
    parameters = load_parameters(params)
    # A function alone is a module with nothing else.
    if isinstance(module, relax.Function):
        module = tvm.IRModule({"main": module})
    with compiler_lock:
        return quietly(lambda: _bind(module, shapes, parameters, name, file))


def _bind(module: Any, shapes: Shapes, parameters: Mapping[str, Any], name: str, file: str) -> ImportedModel:
    try:
        main = entry.find(module, file)
        main, values, notes = entry.bind(main, shapes, parameters, file)
        return replace(_rewrite(module, main, values, name, file), notes=notes)
    except ModelError:
        raise
    except RecursionError:
        raise ModelError(f"{file} nests deeper than is supported") from None
    except Exception as error:  # TVM raises what its operators' checks meet
        raise ModelError(f"{file} is not consistent: {reason(error)}") from error


def _rewrite(module: Any, main: Any, values: Mapping[Any, Any], name: str, file: str) -> ImportedModel:
    """Rewrite the function with TVM's inferred types and unique names."""
    relax_bindings = [relax_binding for block in main.body.blocks for relax_binding in block.bindings]
    # First: all operators that are not supported are named at once.
    entry.check_calls(file, relax_bindings)
    for binding in relax_bindings:
        # A MatchCast checks shapes when the model runs, and an If chooses then; a stage does neither.
        if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
            raise ModelError(
                f"{file}: {str(binding.var.name)!r} depends on the values of other tensors, which is not supported"
            )
    original = _read_stored_names(module, file)
    used_names = {str(param.name) for param in main.params}
    # TVM tells variables apart by identity, frames by name.
    if len(used_names) < len(main.params):
        raise ModelError(f"{file}: two parameters have the same name")
    new_bindings = [
        bindings.Binding(
            binding.var,
            # Inlining a function twice leaves each of its names twice.
            unique(str(binding.var.name), used_names),
            bindings.replace(binding.value, lambda operand: values.get(operand, operand)),
        )
        for binding in relax_bindings
    ]
    inputs = [param for param in main.params if param not in values]
    results = _results(main, new_bindings, used_names, file)
    function = bindings.function(inputs, new_bindings, [values.get(binding, binding) for binding in results])
    outputs = _outputs(original, function, file)
    variables = [*function.params, *(binding.var for block in function.body.blocks for binding in block.bindings)]
    _check_sizes(variables, file)
    names = {var: str(var.name) for var in variables if original is None or str(var.name) in original.tensors}
    new_module = bindings.module(function, bindings.kernels(module))
    if original is None:
        return ImportedModel(name, new_module, tuple(outputs), names)
    metadata = {CARD_KEY: original.card} if original.card else {}
    return ImportedModel(
        original.model, new_module, tuple(outputs), names, original.operators, original.aliases, metadata=metadata
    )


def _results(main: Any, new_bindings: list[bindings.Binding], used_names: set[str], file: str) -> list[Any]:
    """Return the function's output tensors, an operator's tuple unpacked."""
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    if len(results) == 1 and isinstance(body.ty, tvm.ir.TupleType) and isinstance(body, relax.Var):
        parts = [relax.TupleGetItem(body, number) for number in range(len(body.ty.fields))]
        results = [relax.Var(unique(str(body.name), used_names), ty) for ty in body.ty.fields]
        new_bindings += [bindings.Binding(var, str(var.name), part) for var, part in zip(results, parts, strict=True)]
    if not all(isinstance(result.ty, relax.TensorType) for result in results):
        raise ModelError(f"{file} returns something else than a tensor, or one tuple of tensors")
    return results


def _check_sizes(variables: Sequence[Any], file: str) -> None:
    """Refuse impossible tensor sizes before anything has them."""
    for var in variables:
        shape = getattr(var.ty, "shape", None)
        # The type of `call_tir` is taken from the file, and its shape may be a variable.  To iterate over one never
        # ends: as an expression it has a field of any number.
        if shape is not None and not isinstance(shape, relax.ShapeExpr):
            raise ModelError(f"{file}: {str(var.name)!r} has no fixed shape, but what {shape} holds; not supported")
        extents = [int(extent) for extent in shape or () if isinstance(extent, tvm.tirx.IntImm)]
        if min(extents, default=0) < 0 or math.prod(extents) > _MOST_ELEMENTS:
            raise ModelError(f"{file}: {str(var.name)!r} has the shape {extents}, which is not supported")


def _outputs(original: _StoredNames | None, function: Any, file: str) -> list[str]:
    """Return the outputs' stored names, or their variables'."""
    body = function.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    if original is None:
        variable_names = [str(result.name) if isinstance(result, relax.Var) else "" for result in results]
        return [
            # One variable may be returned twice; outputs need names of their own.
            name if name and name not in variable_names[:number] else f"output{number}"
            for number, name in enumerate(variable_names)
        ]
    if len(original.outputs) != len(results):
        raise ModelError(f"{file} is damaged: {len(results)} results, but {len(original.outputs)} names of them")
    return original.outputs


def _read_stored_names(module: Any, file: str) -> _StoredNames | None:
    """Return the names in the module, if `save` wrote it."""
    text = (module.attrs or {}).get(_ATTRIBUTE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(str(text), type=_StoredNames)
    except msgspec.DecodeError as error:
        raise ModelError(f"{file} is damaged: {error}") from None
