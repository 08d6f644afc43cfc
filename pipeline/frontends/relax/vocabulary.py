"""The words of TVMScript that modules may use; what is missing does something else than computing tensors."""

from __future__ import annotations

import re

FOREIGN = ("call_", "invoke_", "make_closure", "print", "assert_op", "vm.", "memory.", "builtin.", "ccl.", "dist.")
"""Beginnings of operators that call, or do, something else than computing tensors; ``call_tir`` calls a kernel."""

_OPERATIONS = """
    abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cast ceil ceildiv clz
    copysign cos cosh erf exp exp10 exp2 fabs floor floordiv floormod fma fmod hypot if_then_else infinity isfinite
    isinf isnan ldexp likely log log10 log1p log2 max max_value min min_value nearbyint nextafter popcount pow
    q_multiply_shift reinterpret round rsqrt shift_left shift_right sigmoid sin sinh sqrt tan tanh trunc truncdiv
    truncmod
"""
_STATEMENTS = """
    Buffer Cast Div Mod Ramp Broadcast Select And Or Not EQ NE LT LE GT GE Let alloc_buffer axis.opaque axis.reduce
    axis.remap axis.scan axis.spatial bool broadcast evaluate func_attr grid handle init match_buffer parallel
    prim_func ramp reads sblock sblock_alloc_buffer sblock_attr serial unroll vectorized where writes
"""
_FUNCTIONS = """
    Any Object Prim Shape Tensor Tuple call_tir const dataflow dtype func_attr function output prim_value shape str
    tuple
"""
MATHEMATICS = frozenset(_OPERATIONS.split())
"""What kernels may call: functions of numbers."""

KERNELS = frozenset(_STATEMENTS.split()) | MATHEMATICS
"""What may stand behind ``T.``, besides dtypes."""

RELAX = frozenset(_FUNCTIONS.split())
"""What may stand behind ``R.``, besides operators."""

MODULES = frozenset({"ir_module", "module_attrs"})
"""What may stand behind ``I.``."""

DTYPE = re.compile(r"(?:bfloat16|float(?:8_\w+|16|32|64)|u?int(?:8|16|32|64)|bool)(?:x\d+)?")

FREE = re.compile(r"[\w .:,>+/*-]*")
"""Strings that may stand anywhere, also where TVM evaluates them: nothing can be called."""
