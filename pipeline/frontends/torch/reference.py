"""Exported programs run by PyTorch itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pipeline.frontends.torch import signature
from pipeline.frontends.torch.archive import open_program

ALTERNATIVE = ""
"""It has one set of kernels for a processor."""


def evaluate(
    model: Any, frame: Mapping[str, np.ndarray], *, alternative: bool = False, runs: int = 1
) -> list[np.ndarray]:
    """Return a program's outputs for a frame."""
    del alternative
    program, positional, keywords = _arguments(model, frame)
    module = program.module()
    with torch.no_grad():
        result = [module(*positional, **keywords) for _ in range(runs)][-1]
    return [tensor.detach().numpy() for tensor in pytree.tree_leaves(result) if isinstance(tensor, torch.Tensor)]


def intermediates(model: Any, frame: Mapping[str, np.ndarray], names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the values of named nodes."""
    program, positional, keywords = _arguments(model, frame)
    recorder = _Recorder(program.module(), names)
    with torch.no_grad():
        recorder.run(*pytree.tree_leaves((positional, keywords)))
    return recorder.tensors


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    """Interpreter of a program that keeps some nodes' values."""

    def __init__(self, module: torch.fx.GraphModule, names: Collection[str]) -> None:
        super().__init__(module)
        self._names = names
        self.tensors: dict[str, np.ndarray] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        """Return the value of a node."""
        value = super().run_node(node)
        if node.name in self._names and isinstance(value, torch.Tensor):
            # A copy, since a later node may write into its memory.
            self.tensors[node.name] = value.numpy().copy()
        return value


def _arguments(model: Any, frame: Mapping[str, np.ndarray]) -> tuple[Any, Any, Any]:
    """Return the program, and a frame as positional and named arguments."""
    program = open_program(Path(model)) if isinstance(model, str | Path) else model
    fixed_values = signature.values(program)
    leaves = [
        torch.from_numpy(np.array(frame[node.name])) if node.name in frame else fixed_values.get(node.name)
        for node in signature.user_inputs(program)
    ]
    # Inputs by name become the module's own arguments, nested as it takes them.
    return program, *pytree.tree_unflatten(leaves, program.call_spec.in_spec)
