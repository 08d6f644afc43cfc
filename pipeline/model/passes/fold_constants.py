"""Constant folding: computation of constant bindings, by NumPy if possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm.tirx import IntImm

from pipeline.model.passes import numpy_rules
from pipeline.model.passes.bindings import Binding, array, constant, module, operands, replace
from pipeline.model.passes.contract import Property, contract
from pipeline.system.memory import LARGE, is_aligned

# 64 MB. What is made of few bytes, such as a mask or a table, would otherwise fill memory and bundles.
_SMALL = 1 << 26
"""Bytes by which a result may exceed its operands."""


# What a device would compute is silent about an infinity or a NaN.
@np.errstate(all="ignore")
@contract(requires=(Property.ORDERED,), ensures=(Property.ORDERED, Property.PLAIN, Property.NAMED))
def fold(
    relax_bindings: Iterable[Any], names: Mapping[Any, str], kernels: Mapping[Any, Any], keep: Collection[Any] = ()
) -> tuple[list[Binding], Callable[[Any], Any]]:
    """Fold a function's bindings.

    Bindings have `names` by their variables; `kernels` are the module's other functions. Variables to `keep` have a
    binding of their own though they are constant. Returns the remaining bindings, none of which holds a bare variable,
    a constant, or a part of a known tuple, and a function from a variable to the expression that now stands for it.
    """
    replacements: dict[Any, Any] = {}
    bindings = []

    def replacement(expression: Any) -> Any:
        return replacements.get(expression, expression) if isinstance(expression, relax.Var) else expression

    for relax_binding in relax_bindings:
        value = replace(relax_binding.value, replacement)
        # Integer weights stay bytes in the model; folding their dequantisation would make them four times as large.
        if relax_binding.var not in keep:
            value = _simplify(value, relax_binding.var.ty, kernels)
        if isinstance(value, Call | relax.TupleGetItem):
            bindings.append(Binding(relax_binding.var, names[relax_binding.var], value))
        else:
            replacements[relax_binding.var] = value
    return bindings, replacement


def _simplify(value: Any, ty: Any, kernels: Mapping[Any, Any]) -> Any:
    if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Tuple):
        return value.tuple_value.fields[value.index]
    if isinstance(value, Call) and (shape := _fold_shape(value)) is not None:
        return shape
    if isinstance(value, Call) and _is_constant(value) and _is_small(value, ty):
        return _compute(value, kernels)
    if isinstance(value, Call) and value.op.name == "relax.reshape" and _keeps_extents(value):
        return value.args[0]
    return value


def _fold_shape(call: Any) -> Any:
    """Fold a call between known shapes and tensors."""
    operator, argument = call.op.name, call.args[0]
    shape = getattr(argument.ty, "shape", None) if operator == "relax.shape_of" else argument
    if operator == "relax.tensor_to_shape" and (extents := array(argument)) is not None:
        return relax.ShapeExpr(extents.tolist())
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, IntImm) for extent in shape):
        return None
    if operator == "relax.shape_to_tensor":
        return constant(np.array(numpy_rules.extents(shape), np.int64))
    return shape if operator == "relax.shape_of" else None


def _keeps_extents(reshape: Any) -> bool:
    extents = getattr(reshape.args[0].ty, "shape", None)
    return extents is not None and list(extents) == list(reshape.args[1])


def _is_constant(call: Any) -> bool:
    """Check if all tensors of `call` are constants, at least one."""
    tensors = operands(call)
    return not any(isinstance(tensor, relax.Var) for tensor in tensors) and any(
        array(tensor) is not None for tensor in tensors
    )


def _compute(call: Any, kernels: Mapping[Any, Any]) -> Any:
    result = numpy_rules.evaluate(call)
    if result is None:
        return _compute_by_tvm(call, kernels)
    # What only has another shape shares the memory of what it is made of; not for good, if that is a model's file.
    return constant(result, share=result.nbytes >= LARGE)


def _compute_by_tvm(call: Any, kernels: Mapping[Any, Any]) -> Any:
    """Return the constant folded by TVM, or the call."""
    call = replace(call, _align)
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    function = relax.transform.FoldConstant()(module(builder.get()["main"], kernels))["main"]
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    constants = [value for value in [*values, function.body.body] if array(value) is not None]
    # Bindings are in order, and the call's own result is the last of them.
    return constants[-1] if constants else call


def _align(operand: Any) -> Any:
    """Return a constant where kernels may read it."""
    values = array(operand)
    return operand if values is None or not values.size or is_aligned(values) else constant(values)


def _is_small(call: Any, ty: Any) -> bool:
    """Check if a result is small, or not much above its operands."""
    results = ty.fields if hasattr(ty, "fields") else [ty]
    operand_bytes = sum(0 if (values := array(operand)) is None else values.nbytes for operand in operands(call))
    return sum(_bytes(result) for result in results) <= max(_SMALL, 4 * operand_bytes)


def _bytes(ty: Any) -> float:
    shape = getattr(ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, IntImm) for extent in shape):
        return 0
    # At most eight bytes per element.
    return 8 * math.prod(numpy_rules.extents(shape))
