"""Families: operators that reach a similar share of a device's rates, and that devices can run or not."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.board_rules import FAMILIES
from pipeline.split.fusion import family as joining
from pipeline.split.graph import Operator

_REDUCTIONS = {"argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "variance"}
_LIGHTEST = ("elementwise", "movement")


def of(operator: Operator) -> str:
    """Return the family of one operator, one of `pipeline.board_rules.FAMILIES`."""
    kind = operator.kind
    if kind.startswith("conv"):
        return "depthwise" if _is_depthwise(operator) else "convolution"
    if kind in ("matmul", "einsum", "attention"):
        return "matmul"
    if "pool" in kind:
        return "pooling"
    if "norm" in kind or "softmax" in kind:
        return "normalization"
    if kind in _REDUCTIONS:
        return "reduction"
    how = joining(kind)
    return how if how == "elementwise" else "movement" if how in ("broadcast", "injective") else "other"


def family(group: Sequence[Operator]) -> str:
    """Return the family of a fused group: that of its heaviest operator, whose loops the others join."""
    found = families(group)
    return next((name for name in FAMILIES if name in found and name not in _LIGHTEST), None) or (
        "elementwise" if "elementwise" in found else "movement"
    )


def families(group: Sequence[Operator]) -> set[str]:
    """Return the families of all operators of a fused group."""
    return {of(operator) for operator in group}


def _is_depthwise(operator: Operator) -> bool:
    """Whether each of a convolution's results comes from one channel: its weights have a second extent of 1."""
    call = operator.lines[0].value if operator.lines else None
    groups = int(getattr(getattr(call, "attrs", None), "groups", 1))
    return groups > 1 and int(call.args[1].ty.shape[1]) == 1  # type: ignore[union-attr]
