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
from pipeline.split.lines import constant

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
    found = _entry(functions, file)
    others = {each: value for each, value in functions.items() if each != found}
    if not _called(functions[found]) & functions.keys():
        return functions[found]
    inlined = functions[found].inline_functions(others)
    return relax.transform.Normalize()(tvm.IRModule({**kernels, found: inlined}))[found]


def _entry(functions: Mapping[Any, Any], file: str) -> Any:
    names = {str(each.name_hint): each for each in functions}
    if "main" in names:
        return names["main"]
    called = {each for value in functions.values() for each in _called(value)}
    left = [each for each in functions if each not in called]
    if len(left) != 1:
        raise ModelError(f"{file} has no function 'main'; it has {', '.join(sorted(names)) or 'none'}")
    return left[0]


def _called(function: Any) -> set[Any]:
    found = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, Call) and isinstance(expression.op, GlobalVar):
            found.add(expression.op)

    relax.analysis.post_order_visit(function, visit)
    return found


def _check_kernel(file: str, name: str, kernel: Any) -> None:
    """Refuse what a kernel would call outside of itself, which a bundle could not take along."""
    # There is no visitor of kernels in Python; their JSON has all nodes in a row.
    nodes = json.loads(tvm.ir.save_json(kernel))["nodes"]
    called = {str(each["data"]).removeprefix("tirx.") for each in nodes if each["type"] == "ir.Op"}
    if outside := sorted(called - MATHEMATICS - {"ret"}):
        raise ModelError(f"{file}: the kernel {name!r} calls {', '.join(outside)}, which is not supported")
    if found := sorted({each["type"] for each in nodes} & _BRINGS_CODE):
        raise ModelError(f"{file}: the kernel {name!r} holds {', '.join(found)}, which is not supported")


def check_calls(file: str, bindings: Sequence[Any]) -> None:
    """Refuse operators that cannot be part of a stage; all are named.

    Raises
    ------
    ModelError
        If there are any.
    """
    found: dict[str, str] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.Function):
            raise ModelError(f"{file} has a function inside of a function, at {str(binding.var.name)!r}; not supported")
        if not isinstance(value, Call):
            continue
        kind = str(value.op.name).removeprefix("relax.") if isinstance(value.op, Op) else str(value.op)
        if kind != "call_tir" and (not isinstance(value.op, Op) or kind.startswith(FOREIGN)):
            found.setdefault(kind, f"{kind} (that makes {str(binding.var.name)!r})")
        if kind == "split" and getattr(value.attrs.indices_or_sections, "value", 0) > _MOST_PARTS:
            raise ModelError(f"{file}: {str(binding.var.name)!r} splits a tensor into more than {_MOST_PARTS} parts")
    if found:
        raise ModelError(f"{file} uses operators that are not supported: {'; '.join(found.values())}")


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
    declared = {str(each.name): each for each in function.params}
    for name in shapes:
        if name not in declared or name in parameters:
            left = [each for each in declared if each not in parameters]
            raise ModelError(f"{file} has no input {name!r}; it has {', '.join(left)}{near(name, left)}")
    if parameters and not parameters.keys() & declared.keys():
        raise ModelError(
            f"none of the parameters given ({', '.join(list(parameters)[:5])}) is one of {file}, "
            f"which has {', '.join(list(declared)[:5])}"
        )
    extents: dict[Any, int] = {}
    for name, param in declared.items():
        given = parameters[name].shape if name in parameters else shapes.get(name)
        extents |= _extents(file, name, param, given, extents)
    for variable, extent in extents.items():
        function = function.bind_symbolic_vars({variable: extent})
    values = {}
    for param in function.params:
        if (array := parameters.get(str(param.name))) is not None:
            values[param] = _constant(file, param, array)
    return function, values


def _extents(file: str, name: str, param: Any, given: Sequence[int] | None, known: Mapping[Any, int]) -> dict[Any, int]:
    """Return the numbers that a shape gives to a parameter's open extents."""
    declared = getattr(param.ty, "shape", None)
    if not isinstance(param.ty, relax.TensorType) or not isinstance(declared, relax.ShapeExpr):
        raise ModelError(f"{file}: {name!r} is no tensor with a known number of dimensions, but {param.ty}")
    shown = [int(each) if isinstance(each, tvm.tirx.IntImm) else str(each) for each in declared]
    if given is None:
        if any(isinstance(each, str) and declared[place] not in known for place, each in enumerate(shown)):
            example = ",".join("1" if isinstance(each, str) else str(each) for each in shown)
            raise ModelError(
                f"input {name!r} has the shape {shown}; give it fixed extents, such as --shape {name}={example}"
            )
        return {}
    found: dict[Any, int] = {}
    fits = len(given) == len(shown)
    for extent, wanted in zip(given, declared, strict=False):
        if isinstance(wanted, tvm.tirx.Var):
            fits = fits and {**known, **found}.get(wanted, extent) == extent
            found[wanted] = extent
        else:
            fits = fits and isinstance(wanted, tvm.tirx.IntImm) and int(wanted) == extent
    if not fits:
        raise ModelError(f"{file}: {name!r} has the shape {shown}, which {list(given)} does not fit")
    return found


def _constant(file: str, param: Any, array: np.ndarray) -> GenericConst:
    dtype = str(param.ty.dtype)
    if str(array.dtype) != dtype:
        raise ModelError(f"parameter {str(param.name)!r} is {array.dtype}, but {file} has {dtype}")
    return constant(array)
