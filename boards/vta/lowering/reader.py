"""Reader: follows the operators of a stage, and collects the steps that VTA runs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from boards.vta.compiler.layers import MaxPool
from boards.vta.compiler.network import Step
from boards.vta.lowering import operators, products, rounding
from boards.vta.lowering.values import HALF, Copy, Pair, Sums, Tensor, Unsupported, sums


class Reader:
    """Knows what each variable stands for, so far.

    Parameters
    ----------
    inputs : sequence of relax.Var
        What the stage reads.
    uses : mapping of relax.Var to int
        How often each variable is read.

    Attributes
    ----------
    steps : list of Step
    tensors : list of Tensor
        The stage's inputs.
    """

    def __init__(self, inputs: Sequence[Any], uses: Mapping[Any, int]) -> None:
        self._uses = uses
        self.tensors = [_input(number, var) for number, var in enumerate(inputs)]
        self.steps: list[Step] = []
        self._known: dict[Any, Any] = dict(zip(inputs, self.tensors, strict=True))
        self._shared: set[int] = set()

    def read(self, var: Any, value: Any) -> None:
        """Follow the binding of a variable.

        Raises
        ------
        Unsupported
            If VTA cannot run it.
        """
        if value in self._known:
            self._know(var, self._known[value])
            return
        name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix("relax.")
        rule = operators.RULES.get(name)
        if rule is None:
            raise Unsupported(f"VTA has no {name.split('.')[-1] or 'such operator'}")
        made = rule(self, value)
        if isinstance(made, Sums) and str(var.ty.dtype) == "int8":
            if name not in operators.CLIPPING:
                raise Unsupported("it computes in eight bits, and what does not fit is lost")
            made = self.rounded(made, 0.0, 0)
        self._know(var, made)

    def _know(self, var: Any, made: Any) -> None:
        """Note what a variable stands for; a tensor that is read twice under any of its names is shared."""
        self._known[var] = made
        copied = isinstance(made, Sums) and isinstance(made.made, Copy)
        tensor = made.made.source if copied else made
        if isinstance(tensor, Tensor) and self._uses.get(var, 0) > 1:
            self._shared.add(tensor.number)

    def tensor(self, var: Any) -> Tensor:
        """Return the tensor in memory that a variable stands for; raise `Unsupported` if it is none."""
        found = self._known.get(var)
        if not isinstance(found, Tensor):
            raise Unsupported("its results are not int8")
        return found

    def sums(self, value: Any) -> Sums:
        """Return a value as sums; bytes are whole numbers."""
        found = self._known.get(value)
        if isinstance(found, Tensor):
            if found.zero:
                raise Unsupported("it computes with unsigned bytes")
            return sums(Copy(found), found.shape[0], found.extents)
        if not isinstance(found, Sums):
            raise Unsupported("it combines constants only")
        return found

    def scaled(self, value: Any) -> tuple[Tensor, float]:
        """Return the tensor in memory that a value is, and the exponent of its unit; raise `Unsupported` if none."""
        found = self.sums(value)
        changed = found.offset.any() or found.bounded or found.floored
        if not isinstance(found.made, Copy) or changed or np.ptp(found.exponent):
            raise Unsupported("what it reads is not quantised")
        return found.made.source, float(found.exponent[0])

    def weights(self, value: Any) -> Any:
        """Return constant weights as int8, and an exponent for all or for each channel of results."""
        found = self._known.get(value)
        return found if isinstance(found, products.Weights) else products.plain(value)

    def known(self, value: Any) -> Any:
        """Return what a variable stands for; None for anything else."""
        return self._known.get(value)

    def append(self, layer: Any, sources: tuple[Tensor, ...], extents: tuple[int, ...], zero: int) -> Tensor:
        """Append a step, and return its result."""
        step = Step(layer, tuple(source.number for source in sources))
        self.steps.append(step)
        return Tensor(len(self.tensors) + len(self.steps) - 1, step.outputs, extents, zero)

    def rounded(self, found: Sums, exponent: float, zero: int) -> Tensor:
        """Return sums as bytes in units of 2^exponent."""
        made = found.made
        if isinstance(made, Copy) and not found.offset.any() and (found.exponent == exponent).all():
            return self._same(found, made.source, exponent, zero)
        layer = rounding.layer(found, exponent)
        sources = (made.left, made.right) if isinstance(made, Pair) else (made.source,)
        return self.append(layer, sources, found.extents, zero)

    def _same(self, found: Sums, source: Tensor, exponent: float, zero: int) -> Tensor:
        """Return bytes that were bytes in the same units before: what made them may clip them as well."""
        low, high = rounding.bounds(found, exponent)
        same = replace(source, extents=found.extents, zero=zero)
        if (low, high) == (-HALF, HALF - 1):
            return same
        place = source.number - len(self.tensors)
        maker = self.steps[place].layer if place >= 0 else None
        if maker is None or isinstance(maker, MaxPool) or source.number in self._shared:
            return self.append(rounding.layer(found, exponent), (source,), found.extents, zero)
        ends: dict[str, Any] = {"low": int(np.clip(maker.low, low, high)), "high": int(np.clip(maker.high, low, high))}
        self.steps[place] = replace(self.steps[place], layer=replace(maker, **ends))
        return same


def _input(number: int, var: Any) -> Tensor:
    try:
        extents = tuple(int(extent) for extent in var.ty.shape)
    except TypeError:
        raise Unsupported("its input has no fixed shape") from None
    zero = {"int8": 0, "uint8": HALF}.get(str(var.ty.dtype))
    if zero is None:
        raise Unsupported(f"its input is {var.ty.dtype}, not int8")
    if not extents or extents[0] != 1 or len(extents) not in (2, 4):
        raise Unsupported(f"its input has the shape {list(extents)}; VTA takes one image, or one row, at a time")
    shape = (extents[1], extents[2], extents[3]) if len(extents) > 2 else (extents[1], 1, 1)
    return Tensor(number, shape, extents, zero)
