"""Writer: what the stand-ins of one rule become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine


def counted(form: Any) -> int:
    """Return the operations that a description counts itself."""
    return int(form.operations)


class Writer(NamedTuple):
    """What a rule's stand-ins become, from the fused function, the rule's description, the machine and the tasks.

    Attributes
    ----------
    form : type
        Of the description.
    statement : callable
        To the whole computation.
    operations : callable
        From the description to the floating-point operations; roughly, where they are not multiplications.
    effort : int
        Times that an operation takes longer than in a convolution, as the elements come from memory.
    exact : callable, optional
        To whether each element is computed once only; None where that is not known.
    """

    form: Any
    statement: Callable[[Fused, Any, Machine, int], Any]
    operations: Callable[[Any], int] = counted
    effort: int = 1
    exact: Callable[[Fused, Any, Machine, int], bool] | None = None


def store(fused: Fused) -> Callable[..., Any]:
    """Return what makes the statement that stores, for a value at its indices, what is fused to it."""

    def stored(total: Any, *indices: Any) -> Any:
        return tir.store(fused.target, fused.value(total, indices), *indices)

    return stored
