"""Offer: a server's files and devices, and its self-description."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec
import psutil

from pipeline.errors import BuildError, PipelineError
from pipeline.executor import core_kinds, host_target
from pipeline.remote import messages
from pipeline.remote.device_threads import ServerDevices, offered_kinds
from pipeline.remote.served_bundle import BUNDLE, OfferedBundle
from pipeline.remote.store import FileStore
from pipeline.system.threads import start_in_thread
from pipeline.system.version import VERSION
from pipeline.tvm.library import tvm_version


class Refusal(PipelineError):
    """Raised when a server refuses a request; the client is informed and dropped."""


@dataclass(frozen=True)
class Offer:
    """Files and devices of a server, for its sessions."""

    store: FileStore
    computing: ServerDevices
    cores: tuple[int, ...]
    """Host cores that stages may use."""
    largest_frame: int = messages.LARGEST_FRAME
    """Bytes that the inputs of a stage may have together, and its outputs."""
    core: str = ""
    """Processor that all these cores are, as LLVM calls it; what Linux says if it is empty."""
    bundle: OfferedBundle | None = None
    """Bundle that it runs as one program."""

    def welcome(self) -> messages.Welcome:
        """Return the first message to a client."""
        return messages.Welcome(
            messages.PROTOCOL,
            VERSION,
            tvm_version(),
            host_target.machine(),
            host_target.full_name()[:4096],
            (*offered_kinds(), *((BUNDLE,) if self.bundle else ())),
            self.cores,
            psutil.virtual_memory().total,
            self.store.uploads is not None,
            self.core or core_kinds.processor(self.cores),
            self.computing.slots,
            self.bundle.slots if self.bundle else 0,
            self.bundle.version() if self.bundle else "",
        )


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
    """Return TVM's description of this processor, asked for once, for clients' builds.

    TVM's compiler knows the processor; the server itself runs with TVM's small runtime, so a process of its own asks.
    """
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
