"""Elementary functions of the C library, which take one value at a time, in arithmetic that vectors have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.language.exponential import exponential

_NESTED = 1
"""Functions of functions of functions are left to the library: the time to compile them grows with a power."""

_OVERFLOW = 88.7228394
"""From here on e to the power of a float32 is none."""

# Rational approximations in x * x, from the highest power down, and beyond which x they do not change (Eigen,
# generic_fast_tanh_float and generic_fast_erf_float).
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    7.90531110763549805,
)  # fmt: skip
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
    4.0,
)  # fmt: skip


def without_library(function: Any) -> Any:
    """Return a function that calls operators of ours instead of the C library's float32 functions.

    Code generation writes them out, so that no pass before it has to go through as many copies as a kernel is unrolled.
    """

    def call(found: Any, mutator: Any) -> Any:
        name = str(getattr(found.op, "name", ""))
        made = mutator.default_mutate(found)
        if name not in _LOWERED or not str(found.ty.dtype).startswith("float32") or _calls(made.args[0]) > _NESTED:
            return made
        return tirx.call_intrin(str(found.ty.dtype), tvm.ir.Op.get(_own(name)), *made.args)

    body = tvm_ffi.structural_mutate(function.body, [(tvm.ir.Call, call)])
    attributes = {str(key): value for key, value in function.attrs.items()}
    return tirx.PrimFunc(list(function.params), body).with_attr(attributes)


def _calls(value: Any) -> int:
    """Return how many operators of ours there are in an expression."""
    found: list[str] = []

    def look(call: Any, mutator: Any) -> Any:
        found.append(str(getattr(call.op, "name", "")))
        return mutator.default_mutate(call)

    tvm_ffi.structural_mutate(value, [(tvm.ir.Call, look)])
    return sum(name.startswith("soc.") for name in found)


def _own(name: str) -> str:
    return name.replace("tirx.", "soc.")


def _exp(value: Any, lanes: int) -> Any:
    beyond = tirx.infinity("float32")
    beyond = beyond if lanes == 1 else tir.vector(beyond, lanes)
    return tirx.Select(value > tir.constant(_OVERFLOW, lanes), beyond, exponential(value, lanes))


def _sigmoid(value: Any, lanes: int) -> Any:
    one = tir.constant(1.0, lanes)
    return one / (one + exponential(tir.constant(0.0, lanes) - value, lanes))


def _rational(value: Any, lanes: int, parts: tuple[Sequence[float], Sequence[float], float]) -> Any:
    above, below, limit = parts
    most, least = (tir.constant(each, lanes) for each in (limit, -limit))
    # A comparison with NaN is false, so that NaN stays what it is.
    value = tirx.Select(value > most, most, value)
    value = tirx.Select(value < least, least, value)
    square = value * value
    return value * _polynomial(above, square, lanes) / _polynomial(below, square, lanes)


def _polynomial(terms: Sequence[float], value: Any, lanes: int) -> Any:
    total = tir.constant(terms[0], lanes)
    for term in terms[1:]:
        total = total * value + tir.constant(term, lanes)
    return total


_LOWERED: dict[str, Callable[[Any, int], Any]] = {
    "tirx.exp": _exp,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": lambda value, lanes: _rational(value, lanes, _TANH),
    "tirx.erf": lambda value, lanes: _rational(value, lanes, _ERF),
}


def _lowering(write: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    def lowered(call: Any) -> Any:
        dtype = str(call.ty.dtype)
        lanes = int(dtype.partition("x")[2] or 1)
        return tir.let(dtype, call.args[0], lambda value: write(value, lanes))

    return lowered


for _name, _write in _LOWERED.items():
    _like = tvm.ir.Op.get(_name)
    tvm.ir.register_op_attr(_own(_name), "TCallEffectKind", _like.get_attr("TCallEffectKind"))
    tvm.ir.register_op_attr(_own(_name), "TVectorizable", True)
    tvm.ir.register_op_attr(_own(_name), "llvm.FLowerIntrinsic", _lowering(_write))
