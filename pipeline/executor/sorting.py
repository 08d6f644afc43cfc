"""Sorting: functions of the process that compiled code calls, where TVM's runtime library has none of its own.

TVM leaves sorts to its ``contrib`` functions, which are in the library with the compiler only.  A board that has just
the runtime could load such a stage, and would fail on the first frame.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np

PREFIX = "tvm.contrib.sort."


class _Withdrawal(MetaPathFinder):
    """Takes the functions back before somebody imports TVM.

    Its compiler has functions of these names, and a name that is taken ends the process.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing, but see the import coming."""
        if name == "tvm" and self.names:
            from pipeline.core.tvm_runtime import tvm_ffi

            sys.meta_path.remove(self)
            while self.names:
                tvm_ffi.remove_global_func(self.names.pop())


_withdrawal = _Withdrawal()


def register_missing() -> None:
    """Make the functions known to TVM that it lacks; before a stage is loaded, since that looks its functions up."""
    from pipeline.core.tvm_runtime import tvm_ffi

    for name, function in FUNCTIONS.items():
        if tvm_ffi.get_global_func(PREFIX + name, allow_missing=True) is None:
            tvm_ffi.register_global_func(PREFIX + name, function, override=True)
            if not _withdrawal.names:
                sys.meta_path.insert(0, _withdrawal)
            _withdrawal.names.add(PREFIX + name)


def _view(tensor: Any) -> np.ndarray:
    """Return an array on a tensor's memory, which the caller keeps.

    Compiled code hands over what nobody counts references of, so that DLPack would end in a segmentation fault.
    """
    dtype = np.dtype(str(tensor.dtype))
    nbytes = math.prod(tensor.shape) * dtype.itemsize
    content = (ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())
    array: np.ndarray = np.frombuffer(content, dtype).reshape(tensor.shape)
    return array


def _order(values: np.ndarray, axis: int, *, ascends: bool) -> np.ndarray:
    """Return the indices that sort an array; equal elements keep their order either way, as TVM's do."""
    if ascends:
        return np.argsort(values, axis, kind="stable")
    # From the end, since a negated integer may overflow.
    reversed_order = np.argsort(np.flip(values, axis), axis, kind="stable")
    return np.flip(values.shape[axis] - 1 - reversed_order, axis)


def _argsort(data: Any, indices: Any, axis: int, ascends: bool) -> None:
    _view(indices)[...] = _order(_view(data), axis, ascends=ascends)


def _sort(data: Any, result: Any, axis: int, ascends: bool) -> None:
    values = _view(data)
    _view(result)[...] = np.take_along_axis(values, _order(values, axis, ascends=ascends), axis)


def _topk(data: Any, *operands: Any) -> None:
    """Write the first of the sorted elements, their indices, or both, as ``kind`` says."""
    *results, count, axis, kind, ascends = operands
    values = _view(data)
    order = _order(values, axis, ascends=ascends)
    if count > 0:
        order = np.take(order, range(count), axis)
    written = {"values": np.take_along_axis(values, order, axis), "indices": order}
    kinds = ("values", "indices") if str(kind) == "both" else (str(kind),)
    for result, name in zip(results, kinds, strict=True):
        _view(result)[...] = written[name]


def _argsort_nms(data: Any, counts: Any, indices: Any, axis: int, ascends: bool) -> None:
    """Write the indices that sort the first so many elements; those behind stay where they are."""
    values = np.moveaxis(_view(data), axis, -1)
    order = np.moveaxis(_view(indices), axis, -1)
    valid_counts = _view(counts).reshape(values.shape[:-1])
    order[...] = np.arange(values.shape[-1])
    for row in np.ndindex(values.shape[:-1]):
        count = int(valid_counts[row])
        order[row][:count] = _order(values[row][:count], 0, ascends=ascends)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "argsort": _argsort,
    "argsort_nms": _argsort_nms,
    "sort": _sort,
    "topk": _topk,
}
"""By their names in TVM's registry, without `PREFIX`."""
