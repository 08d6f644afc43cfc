"""References: models run by their format's own library."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from pipeline import frontends
from pipeline.errors import ModelError, reason
from pipeline.system.optional import require

Arrays = Mapping[str, np.ndarray]


def run(model: Any, frame: Arrays, *, alternative: bool = False, runs: int = 1) -> tuple[str, list[np.ndarray]]:
    """Run a frame through a model without this package's code.

    Raises `ModelError` if no library runs such models, or this one fails; `MissingExtra` if it is not installed. An
    `alternative` takes the library's other kernels for the same operators, if it has some: differences between their
    results are rounding, and say nothing of a model. Of several `runs`, random numbers and what remains of earlier
    frames differ in the last one. Returns the name of the library, or of its other kernels, and the outputs in the
    model's order.
    """
    title, reference = _reference(model)
    with _failures(title):
        is_alternative = alternative and bool(reference.ALTERNATIVE)
        outputs = reference.evaluate(model, frame, alternative=is_alternative, runs=runs)
        return reference.ALTERNATIVE if is_alternative else title, outputs


def run_real(model: Any, frame: Arrays) -> list[np.ndarray] | None:
    """Return a quantised model's unrounded outputs, or None."""
    title, reference = _reference(model)
    if not hasattr(reference, "evaluate_real"):
        return None
    with _failures(title):
        outputs: list[np.ndarray] | None = reference.evaluate_real(model, frame)
    return outputs


def intermediates(model: Any, frame: Arrays, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return named inner tensors from the reference library; see `run`."""
    title, reference = _reference(model)
    with _failures(title):
        tensors: dict[str, np.ndarray] = reference.intermediates(model, frame, names)
    return tensors


def library(model: Any) -> str:
    """Return the installed library for a model, or ""."""
    runtime = frontends.kind(model).library
    return runtime.title if runtime is not None and runtime.is_installed else ""


def check(model: Any) -> None:
    """Raise `ModelError` without a library, `MissingExtra` if not installed."""
    require(frontends.kind(model).required_library.package, "verify", "comparing a model with its own library")


def _reference(model: Any) -> tuple[str, Any]:
    """Return a model's library, and its runner in the frontend."""
    # Here and not above: the libraries are large, and most calls never verify anything.
    entry = frontends.kind(model)
    return entry.required_library.title, entry.module("reference")


@contextlib.contextmanager
def _failures(name: str) -> Iterator[None]:
    """Turn a library's errors into `ModelError`."""
    try:
        yield
    # A missing library is no failure of the model; MissingExtra is an ImportError.
    except (ModelError, ImportError):
        raise
    except Exception as error:  # each library raises types of its own
        raise ModelError(f"{name} cannot run the model: {reason(error, line=0)}") from error
