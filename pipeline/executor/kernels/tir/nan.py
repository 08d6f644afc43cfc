"""NaN: kernels propagate it like libraries, by operand order.

A processor's maximum of two numbers, as ``maxps`` of x86, is the second one where either is NaN, and so is TVM's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te, tirx, topi
from tvm.ir import GenericConst

from pipeline.tvm.objects import mutate


def limits_first(function: Any) -> Any:
    """Reorder a PrimFunc's clips for NaN propagation, as ``relu`` and ``clip`` have it."""

    def order(pair: Any, mutator: Any) -> Any:
        result = mutator.default_mutate(pair)
        # The first operand is passed over where a comparison with NaN is false: the limit comes first.
        if _is_limit(result.b) and not _is_limit(result.a):
            return type(pair)(result.b, result.a)
        return result

    return function.with_body(mutate(function.body, [(tirx.Max, order), (tirx.Min, order)]))


def _is_limit(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)


def limits_pass() -> Any:
    """Return the pass applying `limits_first` to a module's kernels."""
    return tirx.transform.prim_func_pass(lambda function, *_: limits_first(function), opt_level=0, name="LimitsFirst")


def legalizations() -> dict[str, Any]:
    """Return ``LegalizeOps`` rules for NaN-propagating minimum and maximum."""
    return {"relax.maximum": _legalize(topi.maximum), "relax.minimum": _legalize(topi.minimum)}


def _legalize(choose: Any) -> Any:
    def legalize(builder: Any, call: Any) -> Any:
        # A number is a limit, which `limits_first` puts in its place.
        write = choose if any(map(_is_number, call.args)) else partial(_either, choose)
        return builder.call_te(
            write, *map(_operand, call.args), primfunc_name_hint=str(call.op.name).rpartition(".")[2]
        )

    return legalize


def _is_number(value: Any) -> bool:
    return isinstance(value, GenericConst) and value.ty.ndim == 0


def _operand(value: Any) -> Any:
    """Return a scalar constant's typed content, other expressions unchanged."""
    return tirx.const(value.value.numpy().item(), str(value.ty.dtype)) if _is_number(value) else value


def _either(choose: Any, first: Any, second: Any) -> Any:
    choice = choose(first, second)
    # Integers have no NaN.
    if not str(choice.dtype).startswith("float"):
        return choice
    broadcast_first = topi.broadcast_to(first, choice.shape)
    # NaN in the second one is chosen already.
    return te.compute(
        choice.shape,
        lambda *indices: tirx.Select(
            tirx.isnan(broadcast_first(*indices)), broadcast_first(*indices), choice(*indices)
        ),
    )
