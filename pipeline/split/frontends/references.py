"""References: a model run by the library that its format belongs to, to compare with."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.errors import ModelError, reason
from pipeline.split import frontends

Arrays = Mapping[str, np.ndarray]


def run(model: Any, frame: Arrays) -> tuple[str, list[np.ndarray]]:
    """Run one frame through a model, apart from all that this package does.

    Parameters
    ----------
    model : str, Path, onnx.ModelProto, or torch.export.ExportedProgram
    frame : mapping of str to numpy.ndarray
        The inputs by name.

    Returns
    -------
    name : str
        The library.
    outputs : list of numpy.ndarray
        In the model's order.

    Raises
    ------
    ModelError
        If no library runs such models, or this one fails.
    MissingExtra
        If it is not installed.
    """
    frontend = frontends.kind(model).value
    if not frontend.verifiable:
        raise ModelError(f"{frontend.title} cannot be verified: no other library runs it")
    # Here and not above: the libraries are large, and most calls never verify anything.
    reference = importlib.import_module(f"{frontend.package}.reference")
    name: str = reference.LIBRARY
    try:
        return name, reference.evaluate(model, frame)
    # A missing library is no failure of the model; MissingExtra is an ImportError.
    except (ModelError, ImportError):
        raise
    except Exception as error:  # each library raises types of its own
        raise ModelError(f"{name} cannot run the model: {reason(error, line=0)}") from error
