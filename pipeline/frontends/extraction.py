"""Extraction: part of a model between tensors, in its own format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pipeline.core.plan.plan import TensorSpec


class NoCounterpart(Exception):
    """Raised when a stage is no part of its original model."""


@dataclass(frozen=True)
class Region:
    """Part of a model between some of its tensors."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    """Specification in the graph of each tensor of the model, in the stage's order."""
    outside: Collection[str] = field(default=(), repr=False)
    """Tensors of the model that operators of other stages make."""
    open_ends: bool = False
    """True if values at the model's ends may be what they are, of any shape or no tensors, where frames carry them as
    packed bytes."""

    @property
    def ends(self) -> dict[str, TensorSpec]:
        """The inputs and the outputs."""
        return {**self.inputs, **self.outputs}

    def check_inside(self, name: str) -> None:
        """Raise `NoCounterpart` for a tensor made by another stage."""
        if name in self.outside:
            raise NoCounterpart(f"it needs {name!r} of another stage, which does not travel under this name")
