"""An exported program run by PyTorch itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pipeline.split.frontends.torch import signature


def evaluate(program: Any, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the tensors that a program computes of a frame.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    frame : mapping of str to numpy.ndarray
        The inputs by name.
    """
    fixed = signature.values(program)
    leaves = [
        torch.from_numpy(np.array(frame[node.name])) if node.name in frame else fixed.get(node.name)
        for node in signature.user_inputs(program)
    ]
    positional, named = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    with torch.no_grad():
        result = program.module()(*positional, **named)
    return [each.numpy() for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
