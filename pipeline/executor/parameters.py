"""Parameters beside the code: constants lifted out of a stage, and files of aligned arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline.errors import BundleError
from pipeline.memory import LARGE_PAGE, aligned, contents, mapped, pieces

SMALL = 16
"""Constants of fewer elements stay in the code, where the compiler can use their values."""


def lift(function: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Turn the constants of a Relax function into arguments behind its own.

    Returns
    -------
    function : tvm.relax.Function
    parameters : dict of str to numpy.ndarray
        The constants, named after the operator that reads them, in the order of the new arguments.  They share
        TVM's memory, which is aligned.
    """
    from tvm import relax
    from tvm.ir import Call, GenericConst

    found: dict[str, np.ndarray] = {}
    arguments: list[Any] = []

    def lifted(value: Any, reader: str, position: int) -> Any:
        if isinstance(value, relax.Tuple):
            return relax.Tuple(
                [lifted(field, f"{reader}.{position}", index) for index, field in enumerate(value.fields)]
            )
        if not isinstance(value, GenericConst) or np.prod(value.ty.shape, dtype=int) < SMALL:
            return value
        # The number keeps names apart, whatever the operators are called.
        name = f"{len(found)}:{reader}.{position}"
        try:
            found[name] = np.from_dlpack(value.value)
        except (BufferError, RuntimeError):  # NumPy does not know the dtype, such as bfloat16: it stays in the code.
            return value
        arguments.append(relax.Var(name, value.ty))
        return arguments[-1]

    def rebound(binding: Any) -> Any:
        call = binding.value
        if not isinstance(call, Call):
            return binding
        read = [lifted(each, str(binding.var.name), index) for index, each in enumerate(call.args)]
        return relax.VarBinding(binding.var, Call(call.op, read, call.attrs, call.ty_args))

    blocks = [relax.DataflowBlock([rebound(each) for each in block.bindings]) for block in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    changed = relax.Function([*function.params, *arguments], body, function.ret_ty)
    return changed.with_attr("global_symbol", "main"), found


class Entry(msgspec.Struct, frozen=True):
    """Where one array lies in a parameter file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def shared(sets: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Return sets of parameters in which arrays that are equal are the same one."""
    kept: dict[tuple[str, tuple[int, ...], bytes], np.ndarray] = {}
    return [{name: kept.setdefault(_identity(array), array) for name, array in each.items()} for each in sets]


def _identity(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, hashlib.sha256(contents(array)).digest()


def write(path: Path, sets: Sequence[Mapping[str, np.ndarray]]) -> list[list[Entry]]:
    """Write sets of arrays as one file, and return where those of each set are; see `laid_out`."""
    entries, arrays = laid_out(sets)
    with path.open("wb", buffering=LARGE_PAGE) as stream:
        stream.writelines(pieces(arrays))
    return entries


def laid_out(sets: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[list[Entry]], list[np.ndarray]]:
    """Return where the arrays of each set lie in one file, and which arrays that has, in order.

    They lie one behind the other, each at a multiple of 64 bytes, and once, however many entries it has.
    """
    places: dict[tuple[int, str, tuple[int, ...]], int] = {}
    arrays: list[np.ndarray] = []
    end = 0
    for array in (array for each in sets for array in each.values()):
        if _place(array) not in places:
            start = aligned(end)
            places[_place(array)], end = start, start + array.nbytes
            arrays.append(array)
    entries = [
        [Entry(name, str(array.dtype), array.shape, places[_place(array)]) for name, array in each.items()]
        for each in sets
    ]
    return entries, arrays


def _place(array: np.ndarray) -> tuple[int, str, tuple[int, ...]]:
    return array.__array_interface__["data"][0], str(array.dtype), array.shape


def read(path: Path, entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Map a parameter file into memory; pages are read when used, and changes never reach the file.

    Raises
    ------
    BundleError
        If an entry is no array inside the file.
    """
    try:
        return _mapped(path, entries)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{str(path)!r} does not hold the arrays that it should: {error}; build it again") from None


def _mapped(path: Path, entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    if any(extent < 0 for entry in entries for extent in entry.shape):
        raise ValueError("negative dimensions are not allowed")
    if not path.stat().st_size:
        return {entry.name: np.empty(entry.shape, entry.dtype) for entry in entries}
    with path.open("rb") as stream:
        pages = mapped(stream)
    return {
        entry.name: np.ndarray(entry.shape, np.dtype(entry.dtype), buffer=pages, offset=entry.offset)
        for entry in entries
    }
