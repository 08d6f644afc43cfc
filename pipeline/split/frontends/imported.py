"""Imported: what every frontend hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.split.frontends.mapped import Parameters
    from pipeline.split.kept import Kept


@dataclass(frozen=True)
class Imported:
    """A model as a Relax module, and what its parts are called in the model.

    Attributes
    ----------
    name : str
        Name of the model.
    module : tvm.IRModule
        Its function ``main`` is one dataflow block; parameters that are not model inputs are constants.  Other
        functions are kernels that ``main`` calls.
    outputs : tuple of str
        The model's names for its outputs, in order.
    names : mapping
        From a variable of the module to the tensor it holds; a variable without an entry is an intermediate.
    operators : mapping of str to str
        From a tensor to the model's name of the operator that makes it.
    aliases : mapping of str to str
        From a tensor of the model that has no variable of its own to the one that holds its value.
    inner : frozenset of str
        Variables that stand inside one of the model's operators, which was taken apart.
    parameters : Parameters, optional
        The model's files in which constants of the module lie, until the clean-up.
    kept : Kept, optional
        The temporary file in which large constants lie after it.
    """

    name: str
    module: Any
    outputs: tuple[str, ...]
    names: Mapping[Any, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    parameters: Parameters | None = field(default=None, repr=False)
    kept: Kept | None = field(default=None, repr=False)
