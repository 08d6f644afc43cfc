"""ImportedModel: a Relax module with the model's names, and its mapped parameters."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.compiled_file import CompiledFile
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.state import State
from pipeline.core.tensor_quantization import Quantization
from pipeline.system.memory import map_file, release
from pipeline.tvm.access import tvm_ffi

if TYPE_CHECKING:
    from pipeline.model.passes.constant_file import ConstantFile


class Parameters:
    """Files of a model's parameters."""

    def __init__(self) -> None:
        self._files: dict[Path, mmap.mmap] = {}

    def tensor_in(self, path: Path, offset: int, dtype: Any, shape: Sequence[int]) -> Any:
        """Return an array in a file as TVM's tensor, unread.

        The array need not be aligned.
        """
        # One mapping per file: a model has hundreds of tensors in one, and Linux allows a process 65530 mappings by
        # default.
        if path not in self._files:
            with path.open("rb") as stream:
                self._files[path] = map_file(stream.fileno())
        values = np.ndarray(tuple(shape), dtype, buffer=self._files[path], offset=offset)
        return tvm_ffi.from_dlpack(values, require_alignment=0)

    def release(self) -> None:
        """Let the system take back the read pages until needed again."""
        for pages in self._files.values():
            release(pages)


@dataclass(frozen=True)
class Annotation:
    """Device of a tensor, named by the model."""

    tensor: str
    device: str
    """A kind of device, such as ``"cuda"``, or one of several of that kind, such as ``"cuda:0"``."""


@dataclass(frozen=True)
class Island:
    """Operators computed by the model's own runtime, as one operator."""

    tensor: str
    """Tensor that it makes, and others read."""
    operators: tuple[str, ...]
    """Kinds of the model's operators, with the names of their nodes or results."""
    reason: str
    """Reason that the compiler does not get them."""
    keeps_state: bool = False
    """True if the runtime keeps something from one frame for the next."""


@dataclass(frozen=True)
class ImportedModel:
    """A model as a Relax module, with its original names."""

    name: str
    module: Any
    """Module whose function ``main`` is one dataflow block; parameters that are not model inputs are constants. Other
    functions are kernels that ``main`` calls. A `tvm.IRModule`."""
    outputs: tuple[str, ...]
    """The model's names for its outputs, in order."""
    names: Mapping[Any, str] = field(default_factory=dict)
    """Tensor of each variable of the module; a variable without an entry is an intermediate."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """Model's name of the operator that makes a tensor."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Tensor that holds the value of a tensor without a variable of its own."""
    inner_names: frozenset[str] = frozenset()
    """Variables that stand inside one of the model's operators, which was taken apart."""
    annotations: tuple[Annotation, ...] = ()
    """Devices that the model names for its tensors."""
    islands: tuple[Island, ...] = ()
    """Operators that the model's own runtime computes."""
    notes: tuple[str, ...] = ()
    """Assumptions made while the model was read, one line each."""
    quantizations: tuple[Quantization, ...] = ()
    """The numbers that inputs and outputs stand for, where the model states them."""
    parameters: Parameters | None = field(default=None, repr=False)
    """The model's files in which constants of the module lie, until the clean-up."""
    constant_file: ConstantFile | None = field(default=None, repr=False)
    """The temporary file in which large constants lie after it."""
    original: Any = field(default=None, repr=False)
    """File or object that was read, if its format has a library that runs it."""
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Properties and appended files of the model, in which `pipeline.frontends.cards` looks for its card."""
    card: ModelCard | None = field(default=None, repr=False)
    """Inputs wanted and outputs given by the model."""
    states: tuple[State, ...] = ()
    """Inputs and outputs that the model keeps from one frame to the next."""
    compiled: tuple[CompiledFile, ...] = ()
    """The file that was read, if a vendor's compiler has made it."""

    def __post_init__(self) -> None:
        # Often a file's name, which need not be UTF-8, as plans and bundles are.
        object.__setattr__(self, "name", self.name.encode("utf-8", "backslashreplace").decode())

    @property
    def input_dtypes(self) -> dict[str, str]:
        """Dtypes of the inputs, by the model's names."""
        return {self.names.get(var, str(var.name)): str(var.ty.dtype) for var in self.module["main"].params}
