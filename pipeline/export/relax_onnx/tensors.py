"""Tensors and nodes of an unfinished ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Unwritable(Exception):
    """Raised when an operator has no form in ONNX; maybe says why."""


@dataclass(eq=False)
class Tensor:
    """A value of the graph.

    Attributes
    ----------
    name : str
        Empty until it has one.
    values : numpy.ndarray or None
        Values of a constant.
    """

    shape: tuple[int, ...]
    dtype: str
    name: str = ""
    values: np.ndarray | None = field(default=None, repr=False)


@dataclass(eq=False)
class Node:
    """An operator of ONNX.

    Attributes
    ----------
    inputs : list of (Tensor or None)
        None stands for an absent one.
    axes : tuple of int or None
        Axes of a reduction, an attribute or an input by the version of the operator.
    model : onnx.ModelProto or None
        Model of an island, whose nodes stand in its place.
    """

    kind: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: dict[str, Any]
    axes: tuple[int, ...] | None = None
    model: Any = field(default=None, repr=False)


def constant(values: Any, dtype: Any = None) -> Tensor:
    """Return a constant, an initializer once a node reads it."""
    array = np.asarray(values, dtype)
    return Tensor(array.shape, str(array.dtype), values=array)
