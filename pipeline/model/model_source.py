"""ModelSource: the original of a graph, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.core.plan.stage_plan import TensorSpec


@dataclass(frozen=True)
class ModelSource:
    """A model in its own format, with its tensors' names in the graph."""

    model: Any = field(repr=False)
    """Original that was read. Str, Path or object."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Their names in the model, in its order."""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Graph's names of the model's tensors, where they differ."""
    written: tuple[int, int] | None = None
    """Time and size of the model's file when it was read."""

    @staticmethod
    def of(model: Any, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> ModelSource:
        """Return the source of a graph read from one model."""
        input_names, output_names = (tuple(spec.name for spec in specs) for specs in (inputs, outputs))
        return ModelSource(model, input_names, output_names, written=_file_stamp(model))

    def renamed(self, names: Mapping[str, str]) -> ModelSource:
        """Return the source of a graph with renamed tensors."""
        tensors = {**{name: name for name in (*self.inputs, *self.outputs)}, **self.names}
        renamed = {name: names.get(tensor, tensor) for name, tensor in tensors.items()}
        return replace(self, names={**names, **renamed})

    def tensor(self, name: str) -> str:
        """Return the graph's name of a tensor of the model."""
        return self.names.get(name, name)

    @property
    def has_changed(self) -> bool:
        """True if the file is gone or another one."""
        return self.written != _file_stamp(self.model)


def _file_stamp(model: Any) -> tuple[int, int] | None:
    if not isinstance(model, str | Path):
        return None
    try:
        status = Path(model).stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size
