"""Parameters beside code: lifted constants, in files of aligned arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline.errors import BundleError
from pipeline.system.memory import LARGE_PAGE, align_up, contents, pieces

SMALL = 16
"""Constants of fewer elements stay in the code, where the compiler can use their values."""

ITEM_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Bytes per item of the number types in files and on the wire."""

MOST_AXES = 32
"""Most axes of an array in a file or on the wire. NumPy takes twice as many."""


def lift(function: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Turn a Relax function's constants into trailing arguments.

    Returns the constants, named after the operator that reads them, in the order of the new arguments. They share TVM's
    memory, which is aligned.
    """
    from tvm import relax
    from tvm.ir import Call, GenericConst

    constants: dict[str, np.ndarray] = {}
    arguments: list[Any] = []

    def lift_constant(value: Any, reader: str, position: int) -> Any:
        if isinstance(value, relax.Tuple):
            return relax.Tuple(
                [lift_constant(field, f"{reader}.{position}", index) for index, field in enumerate(value.fields)]
            )
        if not isinstance(value, GenericConst) or np.prod(value.ty.shape, dtype=int) < SMALL:
            return value
        # The number keeps names apart, whatever the operators are called.
        name = f"{len(constants)}:{reader}.{position}"
        try:
            # Without a copy: weights that are in memory twice are the largest part of what building takes.
            constants[name] = np.from_dlpack(value.value)
        except (BufferError, RuntimeError):  # NumPy does not know the dtype, such as bfloat16: it stays in the code.
            return value
        arguments.append(relax.Var(name, value.ty))
        return arguments[-1]

    def rebind(binding: Any) -> Any:
        call = binding.value
        if not isinstance(call, Call):
            return binding
        read = [lift_constant(argument, str(binding.var.name), index) for index, argument in enumerate(call.args)]
        return relax.VarBinding(binding.var, Call(call.op, read, call.attrs, call.ty_args))

    blocks = [relax.DataflowBlock([rebind(binding) for binding in block.bindings]) for block in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    result = relax.Function([*function.params, *arguments], body, function.ret_ty)
    # A function that is made anew has lost its name, by which the virtual machine finds it.
    return result.with_attr("global_symbol", "main"), constants


class ParameterEntry(msgspec.Struct, frozen=True):
    """Position of one array in a parameter file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def share_arrays(sets: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Return parameter sets with equal arrays shared."""
    distinct: dict[tuple[str, tuple[int, ...], bytes], np.ndarray] = {}
    return [{name: distinct.setdefault(_identity(array), array) for name, array in arrays.items()} for arrays in sets]


def _identity(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    # Arrays with one digest count as equal without another look, so it has to be a cryptographic one.
    return str(array.dtype), array.shape, hashlib.sha256(contents(array)).digest()


def write(path: Path, sets: Sequence[Mapping[str, np.ndarray]]) -> list[list[ParameterEntry]]:
    """Write array sets to a file and return their entries; see `lay_out`."""
    entries, arrays = lay_out(sets)
    # Most arrays of a network are small; collected, they are written in few calls.
    with path.open("wb", buffering=LARGE_PAGE) as stream:
        stream.writelines(pieces(arrays))
    return entries


def lay_out(sets: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[list[ParameterEntry]], list[np.ndarray]]:
    """Lay out array sets in one file: entries and arrays in order.

    Arrays lie one behind the other, each at a multiple of 64 bytes, and only once, however many entries an array has.
    """
    offsets: dict[tuple[int, str, tuple[int, ...]], int] = {}
    arrays: list[np.ndarray] = []
    end = 0
    for array in (array for arrays_by_name in sets for array in arrays_by_name.values()):
        # Known by address: what `share_arrays` made one array need not be read again to see that.
        if _memory_of(array) not in offsets:
            start = align_up(end)
            offsets[_memory_of(array)], end = start, start + array.nbytes
            arrays.append(array)
    entries = [
        [
            ParameterEntry(name, str(array.dtype), array.shape, offsets[_memory_of(array)])
            for name, array in stage.items()
        ]
        for stage in sets
    ]
    return entries, arrays


def _memory_of(array: np.ndarray) -> tuple[int, str, tuple[int, ...]]:
    return array.__array_interface__["data"][0], str(array.dtype), array.shape


def read(data: np.ndarray, entries: Sequence[ParameterEntry]) -> dict[str, np.ndarray]:
    """Return a parameter file's arrays, on its bytes' memory.

    Parameters
    ----------
    data : numpy.ndarray
        The file's bytes.
    entries : sequence of ParameterEntry

    Raises
    ------
    BundleError
        If an entry is no array of numbers inside the file.
    """
    return {entry.name: _array(data, entry) for entry in entries}


def _array(data: np.ndarray, entry: ParameterEntry) -> np.ndarray:
    problem = ""
    if entry.dtype not in ITEM_BYTES:
        problem = f"{entry.dtype!r} is no type of numbers"
    elif any(extent < 0 for extent in entry.shape) or len(entry.shape) > MOST_AXES:
        problem = f"{list(entry.shape[:MOST_AXES])} is no shape"
    # With Python's integers, which do not overflow: NumPy takes an offset before the buffer's beginning.
    elif not 0 <= entry.offset <= data.nbytes - math.prod(entry.shape) * ITEM_BYTES[entry.dtype]:
        problem = f"{entry.dtype}{list(entry.shape)} at byte {entry.offset} is not inside its {data.nbytes} bytes"
    if problem:
        raise BundleError(f"does not hold the array {entry.name!r}: {problem}")
    # An empty array may lie behind the end.
    buffer, offset = (None, 0) if 0 in entry.shape else (data.data, entry.offset)
    array: np.ndarray = np.ndarray(entry.shape, np.dtype(entry.dtype), buffer=buffer, offset=offset)
    return array
