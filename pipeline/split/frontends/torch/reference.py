"""Exported programs run by PyTorch itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pipeline.split.frontends.torch import signature
from pipeline.split.frontends.torch.archive import open_program

LIBRARY = "PyTorch"


def evaluate(model: Any, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the tensors that a program computes of a frame.

    Parameters
    ----------
    model : torch.export.ExportedProgram, or the path of one
    frame : mapping of str to numpy.ndarray
        The inputs by name.
    """
    program = open_program(Path(model)) if isinstance(model, str | Path) else model
    fixed_values = signature.values(program)
    leaves = [
        torch.from_numpy(np.array(frame[node.name])) if node.name in frame else fixed_values.get(node.name)
        for node in signature.user_inputs(program)
    ]
    # Inputs by name become the module's own arguments, nested as it takes them.
    positional, keywords = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    with torch.no_grad():
        result = program.module()(*positional, **keywords)
    return [each.numpy() for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
