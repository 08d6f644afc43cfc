"""OpenShapes and Build: the same stages for frames of several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import InputError
from pipeline.plans import Plan

Size = Mapping[str, int]
"""An extent for each name, such as ``{"N": 16}``."""

Multiple = tuple[str, int]
"""The name of an extent that varies, and a factor."""


@dataclass(frozen=True)
class Build:
    """A plan's stages, built for the shapes in the plan.

    Attributes
    ----------
    plan : Plan
    codes : tuple
        What each stage's device loads, in the plan's order.
    symbolic : bool
        Whether the code takes any extents where the model's shapes vary; the plan has those of one example.
    """

    plan: Plan
    codes: tuple[Any, ...] = field(repr=False)
    symbolic: bool = False

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its inputs; of a symbolic build, those of the example."""
        return {spec.name: spec.shape for spec in self.plan.inputs}


@dataclass(frozen=True)
class OpenShapes:
    """Which extents of a model's inputs vary.

    Attributes
    ----------
    inputs : mapping of str to tuple of (int or str)
        The shape of each input; equal names are equal extents.
    padded : mapping of str to tuple of (tuple or None)
        If frames may be padded to a larger size: for each output and axis, the name and the factor that its extent is
        the product of; None for an axis that does not vary.  Empty if frames must not be padded.
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    padded: Mapping[str, tuple[Multiple | None, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what varies, in order."""
        found = (extent for shape in self.inputs.values() for extent in shape if isinstance(extent, str))
        return tuple(dict.fromkeys(found))

    def at(self, size: Size) -> dict[str, tuple[int, ...]]:
        """Return the inputs' shapes at a size."""
        return {
            name: tuple(size[each] if isinstance(each, str) else each for each in shape)
            for name, shape in self.inputs.items()
        }

    def size(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return the size at which the inputs have these shapes.

        Raises
        ------
        InputError
            If they have them at no size.
        """
        size: dict[str, int] = {}
        for name, pattern in self.inputs.items():
            shape = tuple(shapes[name])
            if len(shape) != len(pattern):
                raise InputError(f"wrong rank for the input {name!r}: {list(shape)} given, {shown(pattern)} expected")
            for extent, expected in zip(shape, pattern, strict=True):
                if extent != (size.setdefault(expected, extent) if isinstance(expected, str) else expected):
                    where = f" with {told(size)}" if isinstance(expected, str) else ""
                    raise InputError(
                        f"wrong shape for the input {name!r}: {list(shape)} given, {shown(pattern)} expected{where}"
                    )
        return size


def multiples(shape: Sequence[int], other: Sequence[int], size: Size, at: Size) -> tuple[Multiple | None, ...] | None:
    """Return what each extent of a tensor is a multiple of, which has `shape` at `size` and the shape `other` at `at`.

    None if that cannot be said.
    """
    found: list[Multiple | None] = []
    for extent, value in zip(shape, other, strict=True):
        fitting = [(name, extent // part) for name, part in size.items() if extent * at[name] == value * part]
        whole = [(name, factor) for name, factor in fitting if factor * size[name] == extent]
        if extent != value and not whole:
            return None
        found.append(None if extent == value else whole[0])
    return tuple(found)


def shown(pattern: Sequence[int | str]) -> str:
    """Return a shape as text, such as ``[N, 3, 32, 32]``."""
    return f"[{', '.join(map(str, pattern))}]"


def told(size: Size) -> str:
    """Return a size as text, such as ``N=16, H=32``."""
    return ", ".join(f"{name}={extent}" for name, extent in size.items())
