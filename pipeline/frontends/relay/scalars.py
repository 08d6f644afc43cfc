"""Scalars of Relay text, and dtypes of programs."""

from __future__ import annotations

import re

import numpy as np

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
