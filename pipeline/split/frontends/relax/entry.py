"""The function of a Relax module that is the model: found, with what it calls inside of it and its parameters bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op

from pipeline.errors import ModelError, near
from pipeline.split.frontends.relax.vocabulary import FOREIGN, MATHEMATICS
from pipeline.split.passes.bindings import constant

# As in the text form, which JSON and modules in memory have not passed.
_MOST_PARTS = 1 << 12
_BRINGS_CODE = {"tirx.AttrStmt", "ir.GlobalVar", "relax.expr.ExternFunc"}
"""Nodes of a kernel that may bring code from elsewhere."""


def find(module: Any, file: str) -> Any:
    """Return the function that is the model, functions that it calls inlined.

    It is called ``main``, or is the only one that no other calls.

    Raises
    ------
    ModelError
        If there is none, or code outside of the module is called.
    """
    functions = {each: value for each, value in module.functions.items() if isinstance(value, relax.Function)}
    kernels = {each: value for each, value in module.functions.items() if isinstance(value, tvm.tirx.PrimFunc)}
    if foreign := [each for each in module.functions if each not in functions and each not in kernels]:
        raise ModelError(f"{file} has functions of another kind: {', '.join(str(each.name_hint) for each in foreign)}")
    for variable, kernel in kernels.items():
        _check_kernel(file, str(variable.name_hint), kernel)
    entry_variable = _entry(functions, file)
    other_functions = {each: value for each, value in functions.items() if each != entry_variable}
    # Nothing to inline, and the function stays as it is, with its variables.
    if not _called_functions(functions[entry_variable]) & functions.keys():
        return functions[entry_variable]
    inlined_function = functions[entry_variable].inline_functions(other_functions)
    return relax.transform.Normalize()(tvm.IRModule({**kernels, entry_variable: inlined_function}))[entry_variable]


def _entry(functions: Mapping[Any, Any], file: str) -> Any:
    names = {str(variable.name_hint): variable for variable in functions}
    # By name first: what it does not call may be functions that nobody runs.
    if "main" in names:
        return names["main"]
    callees = {variable for value in functions.values() for variable in _called_functions(value)}
    candidates = [variable for variable in functions if variable not in callees]
    if len(candidates) != 1:
        raise ModelError(f"{file} has no function 'main'; it has {', '.join(sorted(names)) or 'none'}")
    return candidates[0]


def _called_functions(function: Any) -> set[Any]:
    callees = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, Call) and isinstance(expression.op, GlobalVar):
            callees.add(expression.op)

    relax.analysis.post_order_visit(function, visit)
    return callees


def _check_kernel(file: str, name: str, kernel: Any) -> None:
    """Refuse what a kernel would call outside of itself, which a bundle could not take along."""
    # There is no visitor of kernels in Python; their JSON has all nodes in a row.
    nodes = json.loads(tvm.ir.save_json(kernel))["nodes"]
    operators = {str(node["data"]).removeprefix("tirx.") for node in nodes if node["type"] == "ir.Op"}
    if foreign_operators := sorted(operators - MATHEMATICS - {"ret"}):
        raise ModelError(f"{file}: the kernel {name!r} calls {', '.join(foreign_operators)}, which is not supported")
    if foreign_nodes := sorted({node["type"] for node in nodes} & _BRINGS_CODE):
        raise ModelError(f"{file}: the kernel {name!r} holds {', '.join(foreign_nodes)}, which is not supported")


def check_calls(file: str, bindings: Sequence[Any]) -> None:
    """Refuse operators that cannot be part of a stage; all are named.

    Raises
    ------
    ModelError
        If there are any.
    """
    complaints: dict[str, str] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.Function):
            raise ModelError(f"{file} has a function inside of a function, at {str(binding.var.name)!r}; not supported")
        if not isinstance(value, Call):
            continue
        # call_tir has a kernel of the module as its operand, which was checked before.
        kind = str(value.op.name).removeprefix("relax.") if isinstance(value.op, Op) else str(value.op)
        if kind != "call_tir" and (not isinstance(value.op, Op) or kind.startswith(FOREIGN)):
            complaints.setdefault(kind, f"{kind} (that makes {str(binding.var.name)!r})")
        if kind == "split" and getattr(value.attrs.indices_or_sections, "value", 0) > _MOST_PARTS:
            raise ModelError(f"{file}: {str(binding.var.name)!r} splits a tensor into more than {_MOST_PARTS} parts")
    if complaints:
        raise ModelError(f"{file} uses operators that are not supported: {'; '.join(complaints.values())}")


def bind(
    function: Any, shapes: Mapping[str, Sequence[int]], parameters: Mapping[str, np.ndarray], file: str
) -> tuple[Any, dict[Any, Any]]:
    """Give open extents their numbers, and parameters their values.

    Returns
    -------
    function : relax.Function
        With its extents fixed.
    values : mapping
        From the parameters that are constants to these.

    Raises
    ------
    ModelError
        If a name is unknown, or a shape or value does not fit.
    """
    parameters_by_name = {str(each.name): each for each in function.params}
    for name in shapes:
        if name not in parameters_by_name or name in parameters:
            candidates = [each for each in parameters_by_name if each not in parameters]
            raise ModelError(f"{file} has no input {name!r}; it has {', '.join(candidates)}{near(name, candidates)}")
    # Some unknown names are fine: files of parameters are shared by several functions.
    if parameters and not parameters.keys() & parameters_by_name.keys():
        raise ModelError(
            f"none of the parameters given ({', '.join(list(parameters)[:5])}) is one of {file}, "
            f"which has {', '.join(list(parameters_by_name)[:5])}"
        )
    extents: dict[Any, int] = {}
    for name, param in parameters_by_name.items():
        shape = parameters[name].shape if name in parameters else shapes.get(name)
        # One after the other: an extent that one input fixes is known for the next.
        extents |= _extents(file, name, param, shape, extents)
    for variable, extent in extents.items():
        function = function.bind_symbolic_vars({variable: extent})
    values = {}
    for param in function.params:
        if (array := parameters.get(str(param.name))) is not None:
            values[param] = _constant(file, param, array)
    return function, values


def _extents(
    file: str, name: str, param: Any, user_shape: Sequence[int] | None, known_extents: Mapping[Any, int]
) -> dict[Any, int]:
    """Return the numbers that a shape gives to a parameter's open extents."""
    declared_shape = getattr(param.ty, "shape", None)
    if not isinstance(param.ty, relax.TensorType) or not isinstance(declared_shape, relax.ShapeExpr):
        raise ModelError(f"{file}: {name!r} is no tensor with a known number of dimensions, but {param.ty}")
    printable = [int(text) if isinstance(text, tvm.tirx.IntImm) else str(text) for text in declared_shape]
    if user_shape is None:
        if any(
            isinstance(text, str) and declared_shape[axis] not in known_extents for axis, text in enumerate(printable)
        ):
            example = ",".join("1" if isinstance(text, str) else str(text) for text in printable)
            raise ModelError(
                f"input {name!r} has the shape {printable}; give it fixed extents, such as --shape {name}={example}"
            )
        return {}
    new_extents: dict[Any, int] = {}
    fits = len(user_shape) == len(printable)
    for extent, declared_extent in zip(user_shape, declared_shape, strict=False):
        if isinstance(declared_extent, tvm.tirx.Var):
            fits = fits and {**known_extents, **new_extents}.get(declared_extent, extent) == extent
            # Also within one shape a symbol stands for one number.
            new_extents[declared_extent] = extent
        else:
            fits = fits and isinstance(declared_extent, tvm.tirx.IntImm) and int(declared_extent) == extent
    if not fits:
        raise ModelError(f"{file}: {name!r} has the shape {printable}, which {list(user_shape)} does not fit")
    return new_extents


def _constant(file: str, param: Any, array: np.ndarray) -> GenericConst:
    dtype = str(param.ty.dtype)
    if str(array.dtype) != dtype:
        raise ModelError(f"parameter {str(param.name)!r} is {array.dtype}, but {file} has {dtype}")
    return constant(array)
