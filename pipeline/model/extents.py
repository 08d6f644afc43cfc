"""Symbolic extents of a part's inputs, renamed if not computable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.tirx.analysis import undefined_vars


def own_extents(types: Sequence[Any]) -> list[Any]:
    """Return input types with new variables for uncomputable extents.

    A part in the middle of a model may read a tensor of ``(H - 1) // 2`` rows, and no other one that tells H.
    """
    # Only bare variables: a function's inputs bind these, and no others.
    symbols = {extent for ty in types for extent in _extents(ty) if isinstance(extent, tirx.Var)}
    variables: dict[str, Any] = {}

    def name_unknown(extent: Any) -> Any:
        # Whatever the inputs bind can be computed from them, and keeps its meaning.
        if all(variable in symbols for variable in undefined_vars(extent)):
            return extent
        return variables.setdefault(str(extent), tirx.Var(f"extent{len(variables)}", "int64"))

    return [_with_extents(ty, [name_unknown(extent) for extent in _extents(ty)]) for ty in types]


def _extents(ty: Any) -> Iterable[Any]:
    shape = getattr(ty, "shape", None)
    return shape if isinstance(shape, relax.ShapeExpr) else ()


def _with_extents(ty: Any, extents: Sequence[Any]) -> Any:
    symbolic = any(not isinstance(extent, tirx.IntImm) for extent in extents)
    return relax.TensorType(relax.ShapeExpr(extents), str(ty.dtype)) if symbolic else ty
