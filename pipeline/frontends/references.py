"""References: a model run by the library that its format belongs to, to compare with."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from pipeline import frontends
from pipeline.errors import ModelError, reason
from pipeline.system.optional import is_installed, require

Arrays = Mapping[str, np.ndarray]


def run(model: Any, frame: Arrays, *, alternative: bool = False, runs: int = 1) -> tuple[str, list[np.ndarray]]:
    """Run one frame through a model, apart from all that this package does.

    Parameters
    ----------
    model : str, Path, onnx.ModelProto, or torch.export.ExportedProgram
    frame : mapping of str to numpy.ndarray
        The inputs by name.
    alternative : bool
        Take the library's other kernels for the same operators, if it has some.  What their results differ by is
        rounding, and says nothing of a model.
    runs : int
        How often, one after the other; random numbers, and what remains of earlier frames, differ in the last one.

    Returns
    -------
    name : str
        The library, or its other kernels.
    outputs : list of numpy.ndarray
        In the model's order.

    Raises
    ------
    ModelError
        If no library runs such models, or this one fails.
    MissingExtra
        If it is not installed.
    """
    reference = _reference(model)
    with _failures(reference.LIBRARY):
        is_alternative = alternative and bool(reference.ALTERNATIVE)
        outputs = reference.evaluate(model, frame, alternative=is_alternative, runs=runs)
        return reference.ALTERNATIVE if is_alternative else reference.LIBRARY, outputs


def run_real(model: Any, frame: Arrays) -> list[np.ndarray] | None:
    """Return a quantised model's outputs without any rounding to integers; None where its library has no such way."""
    reference = _reference(model)
    if not hasattr(reference, "evaluate_real"):
        return None
    with _failures(reference.LIBRARY):
        outputs: list[np.ndarray] | None = reference.evaluate_real(model, frame)
    return outputs


def intermediates(model: Any, frame: Arrays, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return those tensors inside of a model that have these names, as its library computes them; see `run`."""
    reference = _reference(model)
    with _failures(reference.LIBRARY):
        tensors: dict[str, np.ndarray] = reference.intermediates(model, frame, names)
    return tensors


def library(model: Any) -> str:
    """Return the name of the library that runs a model; empty if there is none, or it is not installed."""
    if not frontends.kind(model).value.verifiable:
        return ""
    reference = _reference(model)
    name: str = reference.LIBRARY
    return name if is_installed(reference.PACKAGE) else ""


def check(model: Any) -> None:
    """Raise `ModelError` if no library runs models of this format, or `MissingExtra` if that is not installed."""
    require(_reference(model).PACKAGE, "verify", "comparing a model with its own library")


def _reference(model: Any) -> Any:
    frontend = frontends.kind(model).value
    if not frontend.verifiable:
        raise ModelError(f"{frontend.title} cannot be verified: no other library runs it")
    # Here and not above: the libraries are large, and most calls never verify anything.
    return importlib.import_module(f"{frontend.package}.reference")


@contextlib.contextmanager
def _failures(name: str) -> Iterator[None]:
    """Turn what a library raises into a `ModelError`."""
    try:
        yield
    # A missing library is no failure of the model; MissingExtra is an ImportError.
    except (ModelError, ImportError):
        raise
    except Exception as error:  # each library raises types of its own
        raise ModelError(f"{name} cannot run the model: {reason(error, line=0)}") from error
