"""Precision: 16-bit numbers summed in float32, or entirely computed in it.

A sum of float16 that is kept in float16 stands still at 2,048 times what is added to it; every library that models
are compared with sums in float32 and rounds the result once.  Narrow integers are sorted as wider ones, since TVM's
sorts take no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

NARROW = frozenset({"float16", "bfloat16"})
"""Dtypes that nothing is summed in."""

SUMMING = frozenset(
    f"relax.{name}"
    for name in (
        *(f"nn.{kind}{rank}d{suffix}" for kind, suffix in (("conv", ""), ("conv", "_transpose")) for rank in (1, 2, 3)),
        *(f"nn.{kind}{rank}d" for kind in ("avg_pool", "adaptive_avg_pool") for rank in (1, 2, 3)),
        *("matmul", "einsum", "outer", "nn.attention", "nn.attention_bias", "nn.softmax", "nn.log_softmax"),
        *("nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm", "nn.batch_norm"),
        *("nn.cross_entropy_with_logits", "nn.nll_loss", "sum", "mean", "variance", "std", "prod", "cumsum", "cumprod"),
        *("collapse_sum_like", "collapse_sum_to", "vision.roi_align"),
    )
)
"""Operators that add or multiply many numbers."""

_SORTING = frozenset({"relax.sort", "relax.argsort", "relax.topk", "relax.median"})
"""Operators that TVM computes by its sorts."""

_SUMMED_AS = dict.fromkeys(NARROW, "float32")
"""Dtypes of numbers that are summed in a wider one."""

_SORTED_AS = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
}
"""Dtypes foreign to TVM's sorts, with wider ones of the same order."""

_SCATTERING = frozenset({"relax.scatter_elements", "relax.scatter_nd", "relax.index_put"})
"""Operators that accumulate many numbers if their attributes say so, and else move them."""

_CHOOSING = frozenset(
    f"relax.{name}"
    for name in (
        *("argmax", "argmin", "argsort", "sort", "topk", "nonzero", "unique", "median", "bucketize", "quantize"),
        *("round", "floor", "ceil", "trunc", "sign", "floor_divide", "floor_mod", "mod"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    )
)
"""Operators where a rounding error may change a result by much."""

_DTYPES = ("out_dtype", "dtype")


def widen_calls(module: Any) -> Any:
    """Sum a Relax module's 16-bit numbers and sort its integers in wider dtypes."""
    from tvm import relax

    main = module["main"]
    if not any(_wide_dtypes(binding.value) for block in main.body.blocks for binding in block.bindings):
        return module
    builder = relax.BlockBuilder()
    blocks = [
        type(block)([part for binding in block.bindings for part in _widen_binding(binding, builder)])
        for block in main.body.blocks
    ]
    function = relax.Function(list(main.params), relax.SeqExpr(blocks, main.body.body), main.ret_ty, attrs=main.attrs)
    return _with_main(module, function)


def widen(module: Any, *, keeps_interface: bool = False) -> Any | None:
    """Return a Relax module in float32; None with computation outside TVM.

    Its parameters and results keep their dtypes if `keeps_interface`.
    """
    from tvm import relax

    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    # Its kernels are compiled from code that names the narrow dtype, as does the model of another runtime.
    if len(module.functions) > 1 or any(_kind(binding.value) == "relax.call_dps_packed" for binding in bindings):
        return None
    builder = relax.BlockBuilder()
    types = [parameter.ty if keeps_interface else _widen_type(parameter.ty) for parameter in main.params]
    parameters = [relax.Var(str(old.name), ty) for old, ty in zip(main.params, types, strict=True)]
    replacements: dict[Any, Any] = {}

    def change(value: Any) -> Any:
        return replacements.get(value, value) if isinstance(value, relax.Var) else widen_operand(_widen_constant(value))

    def widen_operand(value: Any) -> Any:
        return builder.emit(relax.op.astype(value, "float32")) if _dtype(value) in NARROW else value

    with builder.function("main", parameters):
        with builder.dataflow():
            replacements |= zip(main.params, map(widen_operand, parameters), strict=True)
            # In the order of the function, so that what an operand was replaced by is known when it is read.
            for binding in bindings:
                value = _widen_expression(binding.value, change)
                is_same = _kind(value) == "relax.astype" and _dtype(value.args[0]) == str(value.attrs.dtype)
                replacements[binding.var] = value.args[0] if is_same else builder.emit(value, str(binding.var.name))
            body = main.body.body
            fields = body.fields if isinstance(body, relax.Tuple) else [body]
            results = [builder.emit_output(_result(change(field), field, keeps_interface)) for field in fields]
        builder.emit_func_output(results if isinstance(body, relax.Tuple) else results[0])
    return builder.get()


def _result(value: Any, original: Any, keeps_interface: bool) -> Any:
    from tvm import relax

    is_narrow = keeps_interface and _dtype(original) in NARROW
    return relax.op.astype(value, _dtype(original)) if is_narrow else value


def is_widely_comparable(module: Any) -> bool:
    """Test if a 16-bit module computes about the same in float32."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    variables = (*module["main"].params, *(binding.var for binding in bindings))
    has_narrow = any(_dtype(variable) in NARROW for variable in variables)
    return has_narrow and not any(_kind(binding.value) in _CHOOSING or _is_integer_of(binding) for binding in bindings)


def _is_integer_of(binding: Any) -> bool:
    """Test for truncation: a small error may change the integer."""
    return _kind(binding.value) == "relax.astype" and not _dtype(binding.var).startswith(("float", "bfloat"))


def _wide_dtypes(value: Any) -> dict[str, str]:
    """Return the dtypes of a call's operands to widen, or {}."""
    if _kind(value) in _SORTING:
        dtypes = _SORTED_AS
    else:
        dtypes = _SUMMED_AS if _kind(value) in SUMMING or _accumulates(value) else {}
    return dtypes if dtypes and any(_holds(argument, dtypes) for argument in value.args) else {}


def _accumulates(value: Any) -> bool:
    """Test for an accumulating scatter, with any number of updates per index."""
    if _kind(value) not in _SCATTERING:
        return False
    # A copy, and the largest or the smallest, are exact in any dtype.
    return bool(getattr(value.attrs, "accumulate", False)) or (
        getattr(value.attrs, "reduction", "update") in {"add", "mul", "mean"}
    )


def _kind(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))


def _holds(value: Any, dtypes: Collection[str]) -> bool:
    fields = getattr(value, "fields", None)
    return _dtype(value) in dtypes if fields is None else any(_holds(field, dtypes) for field in fields)


def _dtype(value: Any) -> str:
    return str(getattr(value.ty, "dtype", ""))


def _widen_binding(binding: Any, builder: Any) -> list[Any]:
    import tvm_ffi
    from tvm import relax

    dtypes = _wide_dtypes(binding.value)
    if not dtypes:
        return [binding]
    name, bindings = str(binding.var.name), []

    # Relax's normal form has no call inside of another one, so each step gets a variable.
    def bind(value: Any) -> Any:
        normal = builder.normalize(value)
        var = relax.DataflowVar(f"{name}:wide", normal.ty)
        bindings.append(relax.VarBinding(var, normal))
        return var

    def change(value: Any) -> Any:
        value = _widen_constant(value)
        dtype = _dtype(value)
        if dtype not in dtypes:
            return value
        operand = bind(_flip_sign(value)) if dtype == "uint64" else value
        return bind(relax.op.astype(operand, dtypes[dtype]))

    result = builder.normalize(_widen_expression(binding.value, change))
    # Indices have their dtype already, and a variable that is another one's value gets in the way of later passes.
    if not tvm_ffi.structural_equal(result.ty, binding.var.ty):
        result = builder.normalize(_narrow(bind(result), binding.var.ty, bind))
    return [*bindings, relax.VarBinding(binding.var, result)]


def _narrow(value: Any, ty: Any, bind: Callable[[Any], Any]) -> Any:
    """Narrow a result to its original dtypes, also within tuples."""
    from tvm import relax

    if hasattr(ty, "fields"):
        parts = [bind(relax.TupleGetItem(value, number)) for number in range(len(ty.fields))]
        return relax.Tuple(
            [
                part if _dtype(part) == str(field.dtype) else bind(_narrow(part, field, bind))
                for part, field in zip(parts, ty.fields, strict=True)
            ]
        )
    narrow = relax.op.astype(value, str(ty.dtype))
    return _flip_sign(bind(narrow)) if str(ty.dtype) == "uint64" else narrow


def _flip_sign(value: Any) -> Any:
    """Flip the highest of 64 bits: numbers keep their order as signed ones."""
    from tvm import relax

    return relax.op.bitwise_xor(value, relax.const(1 << 63, "uint64"))


def _widen_expression(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rewrite an expression's operands by `change`, without 16-bit dtypes."""
    from tvm import relax
    from tvm.ir import Call

    if isinstance(value, Call):
        return Call(
            value.op, [_widen_expression(argument, change) for argument in value.args], _widen_attributes(value.attrs)
        )
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_widen_expression(field, change) for field in value.fields])
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(change(value.tuple_value), value.index)
    return change(value)


def _widen_attributes(attributes: Any) -> Any:
    from tvm.ir.attrs import make_node

    narrow_names = [name for name in _DTYPES if str(getattr(attributes, name, "")) in NARROW]
    if not narrow_names:
        return attributes
    # Attributes are immutable, and TVM has no copy of them with changes.
    info = type(attributes).__tvm_ffi_type_info__
    values = {field.name: getattr(attributes, field.name) for field in info.fields}
    return make_node(info.type_key, **{**values, **dict.fromkeys(narrow_names, "float32")})


def _widen_constant(value: Any) -> Any:
    from tvm import relax
    from tvm.ir import GenericConst

    if not isinstance(value, GenericConst) or _dtype(value) != "float16":
        return value
    return relax.const(np.from_dlpack(value.value).astype(np.float32), "float32")


def _widen_type(ty: Any) -> Any:
    from tvm import relax

    return relax.TensorType(ty.shape, "float32") if str(ty.dtype) in NARROW else ty


def _with_main(module: Any, main: Any) -> Any:
    import tvm

    return tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): main})
