"""TVM's objects, without what its Python classes add to each access."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tvm_ffi
from tvm_ffi.core import TypeSchema

_size, _item = tvm_ffi.get_global_func("ffi.ArraySize"), tvm_ffi.get_global_func("ffi.ArrayGetItem")
_mutate = tvm_ffi.get_global_func("ffi.StructuralMutate")


def items(array: Any) -> list[Any]:
    """Return an array's items; its own iterator takes three times as long."""
    return [_item(array, index) for index in range(_size(array))]


def mutate(root: Any, callbacks: Iterable[tuple[Any, Callable[[Any, Any], Any]]]) -> Any:
    """Return ``tvm_ffi.structural_mutate(root, callbacks)``.

    That inspects the signatures of all callbacks for each call, which takes longer than most expressions.
    """
    return _mutate(root, [(_type_index(kind), callback, False) for kind, callback in callbacks])


@functools.cache
def _type_index(kind: Any) -> int:
    return int(TypeSchema.from_annotation(kind).origin_type_index)
