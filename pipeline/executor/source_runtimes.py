"""Source runtimes: the parts of a stage that the library computes to which the model's format belongs."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.core import affinity, packed_model
from pipeline.core.optional import require

ONNX_RUNTIME = "onnxruntime"
"""The package, and the extra that brings it."""

_sessions: dict[tuple[bytes, int], tuple[Any, list[str]]] = {}
"""By model and number of threads: the session, and the names of its inputs, which it would list anew for each frame."""

# Guards the dictionary only: sessions themselves may be run by several threads at once.
_lock = threading.Lock()
_registered = threading.Event()


def register() -> None:
    """Make the function known to TVM; before a stage is loaded, since that looks its functions up."""
    if _registered.is_set():
        return
    import tvm_ffi

    # Twice by two threads at once does no harm: the second overrides the first.
    tvm_ffi.register_global_func(packed_model.FUNCTION, _run, override=True)
    _registered.set()


def release(digests: Collection[bytes]) -> None:
    """Close the sessions of packed models; another stage that has one of them opens it again."""
    with _lock:
        for key in [key for key in _sessions if key[0] in digests]:
            del _sessions[key]


def open_sessions() -> int:
    """Return how many sessions there are."""
    return len(_sessions)


def digests(parameters: Iterable[np.ndarray]) -> set[bytes]:
    """Return what tells the packed models among a stage's parameters apart; other bytes do no harm."""
    return {packed_model.digest(array) for array in parameters if array.dtype == np.uint8 and array.ndim == 1}


def runtimes(module: Any) -> tuple[str, ...]:
    """Return the packages that a stage's module needs to compute some of its operators."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return (ONNX_RUNTIME,) if any(_is_packed_model(binding.value) for binding in bindings) else ()


def _is_packed_model(value: Any) -> bool:
    from tvm.ir import Call, Op

    is_packed_call = isinstance(value, Call) and value.op == Op.get("relax.call_dps_packed")
    return is_packed_call and str(value.args[0].global_symbol) == packed_model.FUNCTION


def why_missing(packages: Sequence[str]) -> str:
    """Describe which of a stage's runtimes are not installed here, and the remedy; empty if all are."""
    # Names come from files of others: only a known one is looked for.
    if unknown := [name for name in packages if name != ONNX_RUNTIME]:
        return f"needs {unknown[0]!r}, which this version does not know; build it again"
    if not packages or importlib.util.find_spec(ONNX_RUNTIME) is not None:
        return ""
    return f"needs ONNX Runtime; run: pip install 'soc-pipeline[{ONNX_RUNTIME}]'"


def _run(model: Any, *tensors: Any) -> None:
    """Compute a packed model; the outputs' memory comes behind the inputs."""
    arrays = [np.from_dlpack(tensor) for tensor in tensors]
    session, inputs = _session(np.from_dlpack(model))
    results = session.run(None, dict(zip(inputs, arrays, strict=False)))
    for target, result in zip(arrays[len(inputs) :], results, strict=True):
        np.copyto(target, result, casting="no")


def _session(model: np.ndarray) -> tuple[Any, list[str]]:
    # A worker is kept on its stage's cores, and the session computes on as many.
    key = (packed_model.digest(model), len(affinity.thread_cores()))
    with _lock:
        if (entry := _sessions.get(key)) is not None:
            return entry
    session = _open_session(packed_model.unpack(model), key[1])
    inputs = [value.name for value in session.get_inputs()]
    with _lock:
        return _sessions.setdefault(key, (session, inputs))


def _open_session(model: bytes, threads: int) -> Any:
    runtime = require(ONNX_RUNTIME, ONNX_RUNTIME, "operators that ONNX Runtime computes")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Between frames its threads would spin on cores that other stages need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
