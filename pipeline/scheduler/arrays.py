"""Arrays: callers' tensors of any library as NumPy arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pipeline.errors import InputError, describe_error


def read_array(role: str, name: str, value: Any) -> np.ndarray:
    """Return a value as an array, sharing memory where possible.

    Takes what NumPy takes, PyTorch's tensors also with a gradient or of bfloat16, and whatever has only
    ``__dlpack__``, on the CPU.

    Parameters
    ----------
    role, name : str
        Role, such as ``"input"``, and name.
    value : array or anything like one

    Raises
    ------
    InputError
        If it is none, or lies where NumPy cannot read it.
    """
    # The usual case first: this is asked for each input of each frame.
    if type(value) is np.ndarray:
        return value
    try:
        # Not imported: a tensor of PyTorch's can only be there if its caller has done so.
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            # NumPy refuses a tensor that has a gradient.
            return _read_tensor(torch, value.detach())
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            # `asarray` does not know the protocol: it would make an array of one Python object.
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        reason = " ".join(describe_error(error, kind=False).split())
        raise InputError(f"cannot read the {role} {name!r} as an array: a {kind} is given: {reason}") from error


def _read_tensor(torch: Any, tensor: Any) -> np.ndarray:
    if tensor.dtype != torch.bfloat16:
        array: np.ndarray = np.asarray(tensor)
        return array
    try:
        kind = np.dtype("bfloat16")
    except TypeError:  # no package that brings it has been imported, so that no input is of it, either
        raise TypeError("its dtype is bfloat16, which NumPy does not know; give tensor.float()") from None
    # PyTorch converts no bfloat16 to NumPy, but the same bits under another name.
    return np.asarray(tensor.view(torch.int16)).view(kind)
