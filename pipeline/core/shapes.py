"""OpenShapes and Build: the same stages for frames of several sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, ModelError

Size = Mapping[str, int]
"""An extent for each name, such as ``{"N": 16}``."""

Shapes = Mapping[str, Sequence[int | str] | int]
"""Shapes from a caller: extents by input, or one extent by its name in the model."""

Multiple = tuple[str, int]
"""Name of a varying extent, and a factor."""


SizeRange = Mapping[str, int | range | str]
"""Several sizes at once: a number, a range, or a text such as ``"1..32"`` for each name, in all combinations."""

MOST_SIZES = 256
"""A build for each size takes seconds; ranges of more are rather a mistake, or a case for a symbolic build."""


@dataclass(frozen=True)
class Build:
    """A plan's stages, built for the shapes in the plan."""

    plan: Plan
    codes: tuple[Any, ...] = field(repr=False)
    """Code of each of the plan's units for its device, in order."""
    symbolic: bool = False
    """True if the code takes any extents where the model's shapes vary; the plan has those of one example."""
    checksum: str = ""
    """Checksum of its bundle's manifest, which tells versions apart; empty if it was never saved."""

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its inputs; a symbolic build has its example's."""
        return {spec.name: spec.shape for spec in self.plan.inputs}


@dataclass(frozen=True)
class OpenShapes:
    """Varying extents of a model's inputs."""

    inputs: Mapping[str, tuple[int | str, ...]]
    """The shape of each input; equal names are equal extents."""
    padded: Mapping[str, tuple[Multiple | None, ...]] = field(default_factory=dict)
    """If frames may be padded to a larger size: for each output and axis, the name and the factor that its extent is
    the product of; None for an axis that does not vary. Empty if frames must not be padded."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the varying extents, in order."""
        names = (extent for shape in self.inputs.values() for extent in shape if isinstance(extent, str))
        return tuple(dict.fromkeys(names))

    def at(self, size: Size) -> dict[str, tuple[int, ...]]:
        """Return the inputs' shapes at a size."""
        return {
            name: tuple(size[extent] if isinstance(extent, str) else extent for extent in shape)
            for name, shape in self.inputs.items()
        }

    def size(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return the size for inputs of these shapes; `InputError` if there is none."""
        size: dict[str, int] = {}
        for name, pattern in self.inputs.items():
            shape = tuple(shapes[name])
            if len(shape) != len(pattern):
                raise InputError(
                    f"wrong rank for the input {name!r}: {list(shape)} given, {describe_shape(pattern)} expected"
                )
            for extent, extent_or_name in zip(shape, pattern, strict=True):
                varies = isinstance(extent_or_name, str)
                # A name stands for one extent, that of the first axis which has it.
                if extent != (size.setdefault(str(extent_or_name), extent) if varies else extent_or_name):
                    context = f" with {describe_size(size)}" if varies else ""
                    raise InputError(
                        f"wrong shape for the input {name!r}: {list(shape)} given, "
                        f"{describe_shape(pattern)} expected{context}"
                    )
        return size


def sizes_in(size_range: SizeRange) -> list[Size]:
    """Return all sizes of a range, the first name outermost.

    Raises `ModelError` if an extent is neither a number nor a range, a range is empty, or there are too many sizes.
    """
    ranges = {name: _extents(name, extent) for name, extent in size_range.items()}
    count = math.prod(map(len, ranges.values()))
    if count > MOST_SIZES:
        raise ModelError(
            f"{', '.join(f'{name}={extent}' for name, extent in size_range.items())} are {count} sizes; name at most "
            f"{MOST_SIZES}, or build for any size (other_sizes='symbolic')"
        )
    return [dict(zip(ranges, extents, strict=True)) for extents in product(*ranges.values())]


def _extents(name: str, extent_range: Any) -> Sequence[Any]:
    extents: Sequence[Any] = extent_range if isinstance(extent_range, range) else [extent_range]
    if isinstance(extent_range, str):
        first, _, last = extent_range.partition("..")
        if not (first.isdecimal() and last.isdecimal() and len(extent_range) < 40):
            raise ModelError(f"the extent {name} is {extent_range!r}; it must be a number, or a range such as '1..32'")
        extents = range(int(first), int(last) + 1)
    if not extents:
        raise ModelError(f"the range {name}={extent_range} is empty; give the smaller extent first")
    return extents


def extent_multiples(
    shape: Sequence[int], other_shape: Sequence[int], size: Size, other_size: Size
) -> tuple[Multiple | None, ...] | None:
    """Return name and factor of each varying extent of a tensor.

    The result is None if the two shapes do not determine them. The tensor has `shape` at `size`, and `other_shape` at
    `other_size`.
    """
    # Two sizes tell a multiple from a sum: 2 N and N + 4 are both 8 at N = 4, but differ at N = 3.
    factors: list[Multiple | None] = []
    for extent, value in zip(shape, other_shape, strict=True):
        fits = [(name, extent // part) for name, part in size.items() if extent * other_size[name] == value * part]
        exact = [(name, factor) for name, factor in fits if factor * size[name] == extent]
        if extent != value and not exact:
            return None
        factors.append(None if extent == value else exact[0])
    return tuple(factors)


def is_open(shapes: Shapes | None) -> bool:
    """Look for an extent with a name instead of a number."""
    return any(not isinstance(shape, int) and has_name(shape) for shape in (shapes or {}).values())


def has_name(shape: Sequence[int | str]) -> bool:
    """Look for a name in a shape."""
    return any(isinstance(extent, str) for extent in shape)


def describe_shape(pattern: Sequence[int | str]) -> str:
    """Return a shape as text, such as ``[N, 3, 32, 32]``."""
    return f"[{', '.join(map(str, pattern))}]"


def describe_size(size: Size) -> str:
    """Return a size as text, such as ``N=16, H=32``."""
    return ", ".join(f"{name}={extent}" for name, extent in size.items())
