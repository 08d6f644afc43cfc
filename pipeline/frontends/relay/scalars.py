"""Scalars of Relay text, dtypes of programs, and their extents."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.sym import Analyzer

_KINDS = {"f": "float", "i": "int", "u": "uint"}
_WORDS = {"True": True, "False": False, "None": None, "inf": np.inf, "inff": np.inf, "nan": np.nan, "nanf": np.nan}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}

WORDS = frozenset(_WORDS)
"""Names with values."""

DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
"""Dtypes of tensors."""


def number(text: str) -> tuple[int | float, str]:
    """Return value and dtype of ``5``, ``1e-05f`` or ``3i64``; `ValueError` if it does not fit."""
    digits, kind, bits = _parts(text)
    is_integer = digits.isdecimal() and kind in ("", "i", "u")
    # Relay's literals are 32 bits wide unless their suffix says more.
    dtype = f"{_KINDS[kind or ('i' if is_integer else 'f')]}{bits or 32}"
    if dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype!r}")
    return (int(digits) if is_integer else float(digits)), dtype


def _parts(text: str) -> tuple[str, str, str]:
    # TVM prints float16 with this letter and no number of bits.
    if text.endswith("h"):
        return text[:-1], "f", "16"
    match = re.fullmatch(r"([^fiu]*)([fiu]?)(\d*)", text)
    digits, kind, bits = match.groups() if match else (text, "", "")
    if len(digits) > 400:
        # Python refuses to convert longer ones, and no dtype has room for them.
        raise ValueError("too many digits")
    return digits, kind, bits


def scalar(value: float, dtype: str) -> np.ndarray:
    """Return `value` as an array without axes, or raise `ValueError`."""
    if dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype!r}")
    try:
        with np.errstate(over="ignore"):
            # Real numbers round to infinity where they are too large, as in C; whole ones must fit.
            return np.array(value).astype(dtype) if "float" in dtype else np.array(int(value), dtype)
    except OverflowError:
        raise ValueError(f"{value} does not fit {dtype}") from None


def word(name: str) -> bool | float | None:
    """Return the value of one of `WORDS`."""
    return _WORDS[name]


def string(text: str) -> str:
    """Return the content of a quoted string."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


def plain(extent: Any) -> Any:
    """Return an extent as a number if it is one."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else extent


def numbers(extents: Iterable[Any]) -> list[int]:
    """Return the numeric extents."""
    return [extent for extent in extents if isinstance(extent, int)]


def are_equal_shapes(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Check two shapes for equality, symbols included."""
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return bool(Analyzer().can_prove_equal(first, second))


def product(extents: Iterable[Any]) -> Any:
    """Return the number of elements of a shape."""
    # Python's product works on TVM's expressions, which overload multiplication.
    count = math.prod(extents)
    return count if isinstance(count, int) else plain(Analyzer().simplify(count))


def quotient(total: Any, part: Any) -> Any:
    """Divide `total` by `part`; None without proof of an exact result."""
    if isinstance(total, int) and isinstance(part, int):
        # Codes of a reshape may hold 0 and below, which divide nothing.
        return total // part if part > 0 and total % part == 0 else None
    # Floor division is only right where it leaves nothing, which the product proves.
    factor = plain(Analyzer().simplify(tirx.floordiv(total, part)))
    return factor if _equal(product([factor, part]), total) else None
