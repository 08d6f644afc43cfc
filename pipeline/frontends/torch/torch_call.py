"""TorchCall: a node of an exported program on its way into Relax."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TorchCall:
    """A node of a program, and the importer that converts it."""

    importer: Any
    node: Any

    @functools.cached_property
    def operands(self) -> dict[str, Any]:
        """Arguments by schema, defaults included, nodes replaced by imports."""
        defaults = {
            argument.name: argument.default_value if argument.has_default_value() else None
            for argument in self.node.target._schema.arguments  # noqa: SLF001 - there is no public one
        }
        # A node leaves out arguments that have their defaults, and may give the others by position or by name.
        positional = dict(zip(defaults, self.importer.retrieve_args(self.node), strict=False))
        keywords = self.importer.values(list(self.node.kwargs.values()))
        return defaults | positional | dict(zip(self.node.kwargs, keywords, strict=True))

    @property
    def result(self) -> Any:
        """The value of the export: a tensor without elements."""
        return self.node.meta["val"]

    def emit(self, value: Any) -> Any:
        """Return the variable of an expression."""
        return self.importer.block_builder.emit(value)

    def convert_by_tvm(self) -> Any:
        """Return the result of TVM's own converter."""
        return self.importer.tvm_converters[self.node.target.__name__](self.node)

    def __str__(self) -> str:
        """Name the node for messages."""
        return str(self.importer.current_node)


Converter = Callable[[TorchCall], Any]
"""Returns a node in Relax."""


def extents(value: Any) -> list[int]:
    """Return the shape of a tensor."""
    return [int(extent) for extent in value.ty.shape]


def by_axis(value: Any, axes: int) -> list[int]:
    """Return one number for each axis."""
    numbers = [int(number) for number in value] if isinstance(value, list | tuple) else [int(value)]
    # PyTorch's schemas let one number stand for all, and export keeps that.
    return numbers * axes if len(numbers) == 1 else numbers
