"""Source runtimes: stage parts computed by the model format's own library."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.core import packed_model
from pipeline.core.packed_model import RUNTIMES, SourceRuntime
from pipeline.system import affinity
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed

Compute = Callable[[Sequence[np.ndarray]], None]
"""Open model as a function, from the inputs' arrays and, behind them, those for the outputs."""


_SHARED = 0
"""Thread number of an open model shared by all threads; no thread has this number."""

# By digest, number of threads that compute it, and thread that opened it.
_open_models: dict[tuple[bytes, int, int], Compute] = {}

# How many stages there are that have a model, by its digest.
_users: Counter[bytes] = Counter()

# Guards both.
_lock = threading.Lock()


def retain(digests: Collection[bytes]) -> None:
    """Keep opened packed models for an additional stage."""
    with _lock:
        _users.update(digests)


def release(digests: Collection[bytes]) -> None:
    """Close a stage's packed models without other users."""
    with _lock:
        _users.subtract(digests)
        for key in [key for key in _open_models if not _users[key[0]]]:
            del _open_models[key]


def restart(digests: Collection[bytes]) -> None:
    """Reset packed models' states from the calling thread's frames."""
    with _lock:
        for key in [key for key in _open_models if key[0] in digests and key[2] == threading.get_ident()]:
            del _open_models[key]


def digests(parameters: Iterable[np.ndarray]) -> set[bytes]:
    """Return the packed models' digests among parameters, besides harmless others."""
    return {packed_model.digest(array) for array in parameters if array.dtype == np.uint8 and array.ndim == 1}


def runtimes(module: Any) -> tuple[str, ...]:
    """Return the library operator kinds of a stage's module."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    kinds = {_packed_kind(binding.value) for binding in bindings}
    return tuple(kind for kind in RUNTIMES if kind in kinds)


def _packed_kind(value: Any) -> str:
    from tvm.ir import Call, Op

    is_packed_call = isinstance(value, Call) and value.op == Op.get("relax.call_dps_packed")
    return packed_model.function_kind(str(value.args[0].global_symbol)) if is_packed_call else ""


def why_missing(kinds: Sequence[str]) -> str:
    """Describe missing runtimes with the remedy, empty if complete."""
    # Names come from files of others: only a known one is looked for.
    if unknown := [name for name in kinds if name not in RUNTIMES]:
        return f"needs {unknown[0]!r}, which this version does not know; build it again"
    for runtime in map(RUNTIMES.__getitem__, kinds):
        if not is_installed(runtime.package):
            return f"needs {runtime.title}; run: {install_command(runtime.extra)}"
    return ""


def compute(runtime: SourceRuntime, model: Any, *tensors: Any) -> None:
    """Compute a packed model of a runtime; tensors are the inputs and, behind them, the outputs."""
    _open(runtime, np.from_dlpack(model))([np.from_dlpack(tensor) for tensor in tensors])


def _open(runtime: SourceRuntime, model: np.ndarray) -> Compute:
    # A worker is kept on its stage's cores, and the model is computed on as many.
    threads = len(affinity.thread_cores())
    key = (packed_model.digest(model), threads, _SHARED if runtime.shared else threading.get_ident())
    with _lock:
        if (entry := _open_models.get(key)) is not None:
            return entry
    compute: Compute = importlib.import_module(runtime.opener).open_model(packed_model.unpack(model), threads)
    with _lock:
        return _open_models.setdefault(key, compute)


packed_model.computers[:] = [compute]
