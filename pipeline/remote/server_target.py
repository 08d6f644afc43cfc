"""Target of this machine, for clients' builds.

TVM's compiler knows the processor; the server itself runs with TVM's small runtime, so a process of its own asks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future

import msgspec

from pipeline.errors import BuildError
from pipeline.executor import host_target
from pipeline.system.threads import start_in_thread

# By the module's own name, which a text would not follow.
# By way of the door to TVM, which keeps PyTorch out of the process.
_CODE = f"import pipeline.tvm.access; from {host_target.__name__} import host_target; print(host_target())"
LIMIT_S = 300.0
"""Time limit of an emulated processor in seconds."""

_DERIVED = ("tag", "keys")
"""Keys added by TVM itself."""

# Clients that ask at once share one process: it loads TVM's compiler, which takes seconds.
_lock = threading.Lock()
_answers: list[Future[dict[str, object]]] = []


def ask_target() -> Future[dict[str, object]]:
    """Return TVM's description of this processor, asked for once."""
    with _lock:
        # A failure is not kept: it may have been for want of memory.
        if not _answers or (_answers[0].done() and _answers[0].exception()):
            _answers[:] = [start_in_thread(_ask, "target")]
        return _answers[0]


def _ask() -> dict[str, object]:
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "0"}
    line = [sys.executable, "-c", _CODE]
    process = subprocess.run(line, env=environment, capture_output=True, check=False, timeout=LIMIT_S)  # noqa: S603
    if process.returncode:
        reason = process.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BuildError(f"TVM on this machine does not tell its processor's target: {' '.join(reason)}")
    description = msgspec.json.decode(process.stdout, type=dict[str, object])
    return {name: value for name, value in description.items() if name not in _DERIVED}
