"""The model's function of a Relax module, inlined and bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Op

from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError, near
from pipeline.frontends.input_shapes import evaluate, resolve
from pipeline.model.passes.bindings import constant

# Each part is a variable; TVM makes them all before anybody can object.
_MOST_PARTS = 1 << 12
_FOREIGN = ("call_", "invoke_", "make_closure", "print", "assert_op", "vm.", "memory.", "builtin.", "ccl.", "dist.")
"""Beginnings of operators that call, or do, something else than computing tensors; ``call_tir`` calls a kernel."""

_OPERATIONS = """
    abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cast ceil ceildiv clz
    copysign cos cosh erf exp exp10 exp2 fabs floor floordiv floormod fma fmod hypot if_then_else infinity isfinite
    isinf isnan ldexp likely log log10 log1p log2 max max_value min min_value nearbyint nextafter popcount pow
    q_multiply_shift reinterpret round rsqrt shift_left shift_right sigmoid sin sinh sqrt tan tanh trunc truncdiv
    truncmod
"""
_MATHEMATICS = frozenset(_OPERATIONS.split())
"""Functions of numbers, which kernels may call."""

_BRINGS_CODE = {"tirx.AttrStmt", "ir.GlobalVar", "relax.expr.ExternFunc"}
"""Nodes of a kernel with possible foreign code."""


def find(module: Any, file: str) -> Any:
    """Return the model's function with inlined calls.

    The model's function is called ``main``, or is the only one that no other calls. Raises `ModelError` if there is
    none, or code outside of the module is called.
    """
    functions = {variable: value for variable, value in module.functions.items() if isinstance(value, relax.Function)}
    kernels = {variable: value for variable, value in module.functions.items() if isinstance(value, tvm.tirx.PrimFunc)}
    if foreign := [variable for variable in module.functions if variable not in functions and variable not in kernels]:
        raise ModelError(
            f"{file} has functions of another kind: {', '.join(str(variable.name_hint) for variable in foreign)}"
        )
    for variable, kernel in kernels.items():
        _check_kernel(file, str(variable.name_hint), kernel)
    entry_variable = _entry(functions, file)
    other_functions = {variable: value for variable, value in functions.items() if variable != entry_variable}
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
    """Refuse a kernel's outside calls: no bundle could hold them."""
    # There is no visitor of kernels in Python; their JSON has all nodes in a row.
    nodes = json.loads(tvm.ir.save_json(kernel))["nodes"]
    operators = {
        str(node["data"]).removeprefix("tirx.").removeprefix("prim.") for node in nodes if node["type"] == "ir.Op"
    }
    if foreign_operators := sorted(operators - _MATHEMATICS - {"ret"}):
        raise ModelError(f"{file}: the kernel {name!r} calls {', '.join(foreign_operators)}, which is not supported")
    if foreign_nodes := sorted({node["type"] for node in nodes} & _BRINGS_CODE):
        raise ModelError(f"{file}: the kernel {name!r} holds {', '.join(foreign_nodes)}, which is not supported")


def check_calls(file: str, bindings: Sequence[Any]) -> None:
    """Raise `ModelError` with all operators unfit for stages."""
    complaints: dict[str, str] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.Function):
            raise ModelError(f"{file} has a function inside of a function, at {str(binding.var.name)!r}; not supported")
        if not isinstance(value, Call):
            continue
        # call_tir has a kernel of the module as its operand, which was checked before.
        kind = str(value.op.name).removeprefix("relax.") if isinstance(value.op, Op) else str(value.op)
        if kind != "call_tir" and (not isinstance(value.op, Op) or kind.startswith(_FOREIGN)):
            complaints.setdefault(kind, f"{kind} (that makes {str(binding.var.name)!r})")
        if kind == "split" and getattr(value.attrs.indices_or_sections, "value", 0) > _MOST_PARTS:
            raise ModelError(f"{file}: {str(binding.var.name)!r} splits a tensor into more than {_MOST_PARTS} parts")
    if complaints:
        raise ModelError(f"{file} uses operators that are not supported: {'; '.join(complaints.values())}")


def bind(
    function: Any, shapes: Shapes, parameters: Mapping[str, np.ndarray], file: str
) -> tuple[Any, dict[Any, Any], tuple[str, ...]]:
    """Give open extents their numbers, and parameters their values.

    Raises `ModelError` if a name is unknown, or a shape or value does not fit. Returns the function with fixed extents,
    the values of the parameters that are constants, and assumptions on the inputs.
    """
    parameters_by_name = {str(parameter.name): parameter for parameter in function.params}
    for name in shapes:
        if name in parameters:
            candidates = [candidate for candidate in parameters_by_name if candidate not in parameters]
            raise ModelError(f"{file} has no input {name!r}; it has {', '.join(candidates)}{near(name, candidates)}")
    # Some unknown names are fine: files of parameters are shared by several functions.
    if parameters and not parameters.keys() & parameters_by_name.keys():
        raise ModelError(
            f"none of the parameters given ({', '.join(list(parameters)[:5])}) is one of {file}, "
            f"which has {', '.join(list(parameters_by_name)[:5])}"
        )
    patterns = {name: _pattern(file, name, param) for name, param in parameters_by_name.items()}
    values_shapes = {name: array.shape for name, array in parameters.items() if name in patterns}
    for name, shape in values_shapes.items():
        _check_fixed(file, name, patterns[name], shape)
    input_shapes = resolve(file, patterns, {**shapes, **values_shapes})
    extents: dict[Any, int] = {}
    for name, param in parameters_by_name.items():
        # One after the other: an extent that one input fixes is known for the next.
        extents |= _extents(file, name, param, input_shapes.shapes[name], extents)
    for variable, extent in extents.items():
        function = function.bind_symbolic_vars({variable: extent})
    values = {}
    for param in function.params:
        if (array := parameters.get(str(param.name))) is not None:
            values[param] = _constant(file, param, array)
    return function, values, input_shapes.notes


def _pattern(file: str, name: str, param: Any) -> list[int | str]:
    declared_shape = getattr(param.ty, "shape", None)
    if not isinstance(param.ty, relax.TensorType) or not isinstance(declared_shape, relax.ShapeExpr):
        raise ModelError(f"{file}: {name!r} is no tensor with a known number of dimensions, but {param.ty}")
    return [int(extent) if isinstance(extent, tvm.tirx.IntImm) else str(extent) for extent in declared_shape]


def _extents(
    file: str, name: str, param: Any, shape: Sequence[Any], known_extents: Mapping[Any, int]
) -> dict[Any, int]:
    """Return the extents bound by a parameter's shape."""
    new_extents: dict[Any, int] = {}
    for extent, declared_extent in zip(shape, param.ty.shape, strict=True):
        if isinstance(declared_extent, tvm.tirx.Var):
            # Also within one shape a symbol stands for one number.
            new_extents.setdefault(declared_extent, known_extents.get(declared_extent, extent))
    # Also a sum or product of extents stands for one number.
    by_name = {str(variable): extent for variable, extent in {**known_extents, **new_extents}.items()}
    _check_fixed(file, name, _pattern(file, name, param), shape, by_name)
    return new_extents


def _check_fixed(
    file: str, name: str, pattern: Sequence[int | str], shape: Sequence[int], extents: Mapping[str, int] | None = None
) -> None:
    """Raise `ModelError` for a shape against its pattern and extents."""
    expected = [evaluate(extent, extents or {}) if isinstance(extent, str) else extent for extent in pattern]
    if len(shape) != len(pattern) or any(
        value not in (None, extent) for extent, value in zip(shape, expected, strict=True)
    ):
        raise ModelError(f"{file}: {name!r} has the shape {list(pattern)}, which {list(shape)} does not fit")


def _constant(file: str, param: Any, array: np.ndarray) -> GenericConst:
    dtype = str(param.ty.dtype)
    if str(array.dtype) != dtype:
        raise ModelError(f"parameter {str(param.name)!r} is {array.dtype}, but {file} has {dtype}")
    return constant(array)
