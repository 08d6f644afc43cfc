"""Arguments of a program's node, by its operator's schema."""

from __future__ import annotations

from typing import Any


def arguments(importer: Any, node: Any) -> dict[str, Any]:
    """Return all arguments, defaults included, nodes replaced by their imports."""
    defaults = {
        argument.name: argument.default_value if argument.has_default_value() else None
        for argument in node.target._schema.arguments  # noqa: SLF001 - there is no public one
    }
    # A node leaves out arguments that have their defaults, and may give the others by position or by name.
    positional = dict(zip(defaults, importer.retrieve_args(node), strict=False))
    return defaults | positional | dict(zip(node.kwargs, importer.values(list(node.kwargs.values())), strict=True))


def extents(value: Any) -> list[int]:
    """Return the shape of a tensor."""
    return [int(extent) for extent in value.ty.shape]


def by_axis(value: Any, axes: int) -> list[int]:
    """Return one number for each axis."""
    numbers = [int(number) for number in value] if isinstance(value, list | tuple) else [int(value)]
    # PyTorch's schemas let one number stand for all, and export keeps that.
    return numbers * axes if len(numbers) == 1 else numbers
