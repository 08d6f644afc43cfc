"""Tensors and nodes of an unfinished ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Unwritable(Exception):
    """Raised when an operator has no form in ONNX; maybe says why."""


@dataclass(eq=False)
class Tensor:
    """A value of the graph."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""
    """Empty until it has one."""
    values: np.ndarray | None = field(default=None, repr=False)
    """Values of a constant."""


@dataclass(eq=False)
class Node:
    """An operator of ONNX."""

    kind: str
    inputs: list[Tensor | None]
    """None stands for an absent one."""
    outputs: list[Tensor]
    attributes: dict[str, Any]
    axes: tuple[int, ...] | None = None
    """Axes of a reduction, an attribute or an input by the version of the operator."""
    model: Any = field(default=None, repr=False)
    """Model of an island, whose nodes stand in its place. Onnx.ModelProto or None."""


def constant(values: Any, dtype: Any = None) -> Tensor:
    """Return a constant, an initializer once a node reads it."""
    array = np.asarray(values, dtype)
    return Tensor(array.shape, str(array.dtype), values=array)
