"""Relax modules: in memory, as TVMScript, or as JSON, read; and written as JSON, which TVM's own tools read as well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import relax

from pipeline.errors import ModelError
from pipeline.files import write_atomically
from pipeline.split import lines
from pipeline.split.clean import clean
from pipeline.split.frontends.imported import Imported
from pipeline.split.frontends.relax import entry, json_form, script
from pipeline.split.frontends.relay import params as parameter_files
from pipeline.split.frontends.relay.params import Params
from pipeline.split.naming import given, unique
from pipeline.tvm_access import compiler_lock, quiet

Shapes = Mapping[str, Sequence[int]]

_MOST_ELEMENTS = 2**31

_ATTRIBUTE = "soc_pipeline"
"""The attribute of a module that holds the names which its variables cannot tell."""


class _Names(msgspec.Struct, forbid_unknown_fields=True):
    """As in `Imported`; `tensors` are those variables that are called after a tensor of the model."""

    model: str
    tensors: list[str]
    outputs: list[str]
    operators: dict[str, str]
    aliases: dict[str, str]


def save(imported: Imported, path: Path) -> None:
    """Clean up a model and write it, so that `load` finds all names again."""
    with compiler_lock:
        tensors = sorted(given(imported))
        imported = clean(imported)
        names = _Names(imported.name, tensors, list(imported.outputs), dict(imported.operators), dict(imported.aliases))
        module = imported.module.with_attr(_ATTRIBUTE, msgspec.json.encode(names).decode())
        text = tvm.ir.save_json(module)
    write_atomically(path, str(text).encode())


def load(path: Path, shapes: Shapes, params: Params | None = None) -> Imported:
    """Read a Relax module from TVMScript, or from the JSON of ``tvm.ir.save_json``.

    Raises
    ------
    ModelError
        If it is damaged, holds what is not allowed in a file, or has no function that is the model.
    """
    try:
        text = path.read_text(encoding="utf-8")
        with compiler_lock, quiet():
            module = (json_form if text.lstrip().startswith("{") else script).parse(text)
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{str(path)!r} is damaged: it is no text in UTF-8") from None
    except ValueError as error:
        raise ModelError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(module, tvm.IRModule):
        raise ModelError(f"{str(path)!r} holds no module, but a {type(module).__name__}")
    return from_module(module, shapes, params, path.stem, repr(str(path)))


def from_module(
    module: Any, shapes: Shapes, params: Params | None = None, name: str = "model", file: str = "the module"
) -> Imported:
    """Return a Relax module as it goes through the splitter.

    Parameters
    ----------
    module : tvm.IRModule or tvm.relax.Function
    shapes : mapping of str to sequence of int
        Extents for inputs that the module leaves open.
    params : mapping, str or Path, optional
        Values for parameters of the function by name, as for Relay; what has none is an input of the model.
    name, file : str
        Of the model, and what messages call it.

    Raises
    ------
    ModelError
        If no function is the model, or it uses what is not supported.
    """
    parameters = parameter_files.load(params)
    if isinstance(module, relax.Function):
        module = tvm.IRModule({"main": module})
    with compiler_lock, quiet():
        try:
            main = entry.find(module, file)
            main, values = entry.bind(main, shapes, parameters, file)
            return _renewed(module, main, values, name, file)
        except ModelError:
            raise
        except RecursionError:
            raise ModelError(f"{file} nests deeper than is supported") from None
        except Exception as error:  # TVM raises what its operators' checks meet
            reason = str(error).strip().splitlines()
            raise ModelError(f"{file} is not consistent: {reason[-1] if reason else type(error).__name__}") from error


def _renewed(module: Any, main: Any, values: Mapping[Any, Any], name: str, file: str) -> Imported:
    """Write the function anew, so that all its types are what TVM infers, and no two variables have one name."""
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    entry.check_calls(file, bindings)
    for each in bindings:
        if not isinstance(each, relax.VarBinding) or isinstance(each.value, relax.If):
            raise ModelError(
                f"{file}: {str(each.var.name)!r} depends on the values of other tensors, which is not supported"
            )
    stored = _stored(module, file)
    taken = {str(param.name) for param in main.params}
    if len(taken) < len(main.params):
        raise ModelError(f"{file}: two parameters have the same name")
    made = [
        lines.Line(
            each.var, unique(str(each.var.name), taken), lines.replace(each.value, lambda one: values.get(one, one))
        )
        for each in bindings
    ]
    inputs = [param for param in main.params if param not in values]
    results = _results(main, made, taken, file)
    function = lines.function(inputs, made, [values.get(each, each) for each in results])
    outputs = _outputs(stored, function, file)
    variables = [*function.params, *(each.var for block in function.body.blocks for each in block.bindings)]
    _check_sizes(variables, file)
    names = {var: str(var.name) for var in variables if stored is None or str(var.name) in stored.tensors}
    joined = lines.module(function, lines.kernels(module))
    if stored is None:
        return Imported(name, joined, tuple(outputs), names)
    return Imported(stored.model, joined, tuple(outputs), names, stored.operators, stored.aliases)


def _results(main: Any, made: list[lines.Line], taken: set[str], file: str) -> list[Any]:
    """Return the tensors that leave the function; a tuple that an operator makes is taken apart by lines of its own."""
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    if len(results) == 1 and isinstance(body.ty, tvm.ir.TupleType) and isinstance(body, relax.Var):
        parts = [relax.TupleGetItem(body, number) for number in range(len(body.ty.fields))]
        results = [relax.Var(unique(str(body.name), taken), ty) for ty in body.ty.fields]
        made += [lines.Line(var, str(var.name), part) for var, part in zip(results, parts, strict=True)]
    if not all(isinstance(each.ty, relax.TensorType) for each in results):
        raise ModelError(f"{file} returns something else than a tensor, or one tuple of tensors")
    return results


def _check_sizes(variables: Sequence[Any], file: str) -> None:
    """Refuse tensors that no machine holds, before anything is made of their size."""
    for var in variables:
        shape = getattr(var.ty, "shape", None)
        extents = [int(each) for each in shape if isinstance(each, tvm.tirx.IntImm)] if shape is not None else []
        if min(extents, default=0) < 0 or math.prod(extents) > _MOST_ELEMENTS:
            raise ModelError(f"{file}: {str(var.name)!r} has the shape {extents}, which is not supported")


def _outputs(stored: _Names | None, function: Any, file: str) -> list[str]:
    """Return the stored names of the outputs, or those of their variables."""
    body = function.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    if stored is None:
        found = [str(each.name) if isinstance(each, relax.Var) else "" for each in results]
        return [name if name and name not in found[:number] else f"output{number}" for number, name in enumerate(found)]
    if len(stored.outputs) != len(results):
        raise ModelError(f"{file} is damaged: {len(results)} results, but {len(stored.outputs)} names of them")
    return stored.outputs


def _stored(module: Any, file: str) -> _Names | None:
    """Return the names in the module, if `save` wrote it."""
    text = (module.attrs or {}).get(_ATTRIBUTE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(str(text), type=_Names)
    except msgspec.DecodeError as error:
        raise ModelError(f"{file} is damaged: {error}") from None
