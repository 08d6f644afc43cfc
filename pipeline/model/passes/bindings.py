"""Bindings of a model during the clean-up, and functions from them."""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst
from tvm.tirx.analysis import undefined_vars

from pipeline.core import packed_model
from pipeline.core.packed_model import SourceRuntime
from pipeline.model.passes.contract import Property, contract
from pipeline.system.memory import is_usable, snapshot
from pipeline.tvm.objects import items

_make_call, _UNKNOWN_TYPE = tvm.get_global_func("ir.Call"), tvm.ir.Type.missing()
_FORM = "soc_pipeline.form"
"""Attribute of a kernel's call: what it computes, in JSON."""


@dataclass
class Binding:
    """The variable `var`, to be called `name`, holds `value`.

    `value` is a Relax expression, or what a clean-up pass keeps in its place until it is lowered.
    """

    var: Any
    name: str
    value: Any


def operands(value: Any) -> list[Any]:
    """Return the operands of a Relax expression, tuples flattened."""
    # By the very class: TVM's have no others below them, and a test of instances takes ten times as long.
    kind = type(value)
    if kind is Call or kind is relax.Tuple:
        parts = items(value.args if kind is Call else value.fields)
        return [operand for part in parts for operand in operands(part)]
    return [value.tuple_value] if kind is relax.TupleGetItem else [value]


def variables(value: Any) -> list[Any]:
    """Return the variables among an expression's operands."""
    return [operand for operand in operands(value) if isinstance(operand, relax.Var)]


def replace(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an expression with `change` applied to each operand.

    It is the expression itself if nothing changed; else its type is left to be inferred.
    """
    kind = type(value)
    if kind is relax.TupleGetItem:
        source = change(value.tuple_value)
        return value if source is value.tuple_value else relax.TupleGetItem(source, value.index)
    if kind is not Call and kind is not relax.Tuple:
        return change(value)
    parts = items(value.args if kind is Call else value.fields)
    new_parts = [replace(part, change) for part in parts]
    if all(map(operator.is_, parts, new_parts)):
        return value
    if kind is relax.Tuple:
        return relax.Tuple(new_parts)
    # As the class does, without its imports.
    return _make_call(_UNKNOWN_TYPE, value.op, new_parts, value.attrs, value.ty_args, None)


def array(value: Any) -> np.ndarray | None:
    """Return a constant's array, uncopied for NumPy's dtypes, else None."""
    if not isinstance(value, GenericConst):
        return None
    try:
        # NumPy refuses dtypes that it does not know, such as bfloat16, each version with an error of its own.
        return np.from_dlpack(value.value)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(value.value.numpy())


def calls(value: Any, *names: str) -> bool:
    """Check for a call of given operators, such as ``"nn.conv2d"``."""
    if not isinstance(value, Call):
        return False
    namespace, _, name = getattr(value.op, "name", "").partition(".")
    return namespace == "relax" and name in names


def kernel(value: Any) -> Any:
    """Return the called kernel's global variable, or None."""
    # `call_tir` has the kernel as its first argument, and its operands as a tuple behind it.
    is_kernel_call = calls(value, "call_tir")
    return value.args[0] if is_kernel_call else None


def with_form(call: Any, form: Mapping[str, Any]) -> Any:
    """Return a kernel's call with its form, for better implementations.

    `form`: JSON values; ``"kind"`` is the operator of ONNX, or ``"Requantize"``.
    """
    attributes = tvm.ir.make_node("ir.DictAttrs", **{_FORM: json.dumps(form)})
    return Call(call.op, call.args, attributes, call.ty_args)


def form_of(value: Any) -> dict[str, Any]:
    """Return the form of a kernel's call, or {}."""
    attributes = value.attrs if kernel(value) is not None else None
    form: dict[str, Any] = json.loads(str(attributes[_FORM])) if attributes and _FORM in attributes else {}
    return form


def call_island(runtime: SourceRuntime, model: bytes, operands: Sequence[Any], types: Sequence[Any]) -> Any:
    """Return a call of a packed model; several results are a tuple."""
    return call_packed(runtime.kind, model, operands, types)


def call_packed(kind: str, model: bytes, operands: Sequence[Any], types: Sequence[Any]) -> Any:
    """Return a call of a file of a kind; several results are a tuple."""
    packed_operands = [constant(packed_model.pack(model)), *operands]
    result_types = list(types) if len(types) > 1 else types[0]
    return relax.call_dps_packed(packed_model.function_name(kind), packed_operands, result_types)


def island(value: Any) -> str:
    """Return the name of the foreign function called, or ""."""
    is_packed = calls(value, "call_dps_packed")
    return str(value.args[0].global_symbol) if is_packed else ""


def kind(value: Any) -> str:
    """Return a value's operator without namespace, or kernel without number."""
    if function_name := island(value):
        return function_name.rpartition(".")[2]
    if (kernel_variable := kernel(value)) is not None:
        return str(kernel_variable.name_hint).rstrip("0123456789")
    return str(value.op.name).split(".")[-1] if isinstance(value, Call) else "item"


def module(main: Any, kernels: Mapping[Any, Any]) -> Any:
    """Return a module of ``main`` and its kernels.

    `kernels`: functions of kernels, these and maybe others, by their global variables.
    """
    result = tvm.IRModule({"main": main})
    for block in main.body.blocks:
        for binding in block.bindings:
            if (variable := kernel(binding.value)) is not None:
                result[variable] = kernels[variable]
    return relax.transform.Normalize()(result)


def kernels(relax_module: Any) -> dict[Any, Any]:
    """Return a module's functions but ``main``, by global variable."""
    return {
        variable: kernel_function
        for variable, kernel_function in relax_module.functions.items()
        if variable.name_hint != "main"
    }


def constant(values: np.ndarray, *, share: bool = False) -> Any:
    """Return a Relax constant of the array's own dtype.

    TVM would make 32 bits of 64.

    `share` is True if it may lie in the array's own memory, where that is aligned and contiguous; nobody may write it
    later.
    """
    # NumPy has some dtypes from other packages, which TVM does not take from it; nor does it take empty arrays.
    with contextlib.suppress(BufferError, RuntimeError, TypeError):
        if values.size and not values.dtype.hasobject:
            return relax.const(tvm.runtime.from_dlpack(values if share and is_usable(values) else snapshot(values)))
    return relax.const(np.array(values, order="C"), str(values.dtype))


@contract(requires=(Property.ORDERED,), ensures=(Property.ORDERED, Property.LIVE))
def live(bindings: Sequence[Binding], outputs: Iterable[Any]) -> list[Binding]:
    """Return the bindings behind outputs, in order."""
    live_variables = {variable for output in outputs for variable in variables(output)}
    live_bindings = []
    # Backwards: all readers of a binding come behind it.
    for binding in reversed(bindings):
        if binding.var in live_variables:
            live_variables.update(variables(binding.value))
            live_bindings.append(binding)
    return live_bindings[::-1]


def function(params: Sequence[Any], bindings: Sequence[Binding], outputs: Sequence[Any]) -> Any:
    """Return a function ``main`` with new variables named as their bindings.

    A variable that leaves the function is an output of its single dataflow block.
    """
    builder = relax.BlockBuilder()
    leaving = {variable for output in outputs for variable in variables(output)}
    # Inputs in the middle of a model may have extents that only the model's inputs explain.
    types = own_extents([param.ty for param in params])
    new_variables = {param: relax.Var(param.name, ty) for param, ty in zip(params, types, strict=True)}
    relax_bindings = []
    for binding in bindings:
        value = builder.normalize(replace(binding.value, lambda operand: new_variables.get(operand, operand)))
        variable = (relax.Var if binding.var in leaving else relax.DataflowVar)(binding.name, value.ty)
        new_variables[binding.var] = variable
        relax_bindings.append(relax.VarBinding(variable, value))
    results = [new_variables.get(output, output) for output in outputs]
    body = results[0] if len(results) == 1 else builder.normalize(relax.Tuple(results))
    blocks = [relax.DataflowBlock(relax_bindings)] if relax_bindings else []
    return relax.Function([new_variables[param] for param in params], relax.SeqExpr(blocks, body), body.ty).with_attr(
        "global_symbol", "main"
    )


def own_extents(types: Sequence[Any]) -> list[Any]:
    """Return input types with new variables for uncomputable extents.

    A part in the middle of a model may read a tensor of ``(H - 1) // 2`` rows, and no other one that tells H.
    """
    # Only bare variables: a function's inputs bind these, and no others.
    symbols = {extent for ty in types for extent in _extents(ty) if isinstance(extent, tirx.Var)}
    unknown_extents: dict[str, Any] = {}

    def name_unknown(extent: Any) -> Any:
        # Whatever the inputs bind can be computed from them, and keeps its meaning.
        if all(variable in symbols for variable in undefined_vars(extent)):
            return extent
        return unknown_extents.setdefault(str(extent), tirx.Var(f"extent{len(unknown_extents)}", "int64"))

    return [_with_extents(ty, [name_unknown(extent) for extent in _extents(ty)]) for ty in types]


def _extents(ty: Any) -> Iterable[Any]:
    shape = getattr(ty, "shape", None)
    return shape if isinstance(shape, relax.ShapeExpr) else ()


def _with_extents(ty: Any, extents: Sequence[Any]) -> Any:
    symbolic = any(not isinstance(extent, tirx.IntImm) for extent in extents)
    return relax.TensorType(relax.ShapeExpr(extents), str(ty.dtype)) if symbolic else ty
