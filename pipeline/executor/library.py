"""Libraries: the code of stages, brought into this process from bytes that were verified."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.core.native_output import quietly
from pipeline.core.tvm_runtime import tvm_ffi
from pipeline.errors import BundleError, reason
from pipeline.executor.verified_file import VerifiedContent

# TVM keeps what it loads until the process ends; so one module for all who load the same bytes costs nothing more.
_modules: dict[str, Any] = {}
_lock = threading.Lock()


def module(library: VerifiedContent) -> Any:
    """Return the TVM module of a shared library; the same one for the same bytes.

    Raises
    ------
    BundleError
        If it is none.
    """
    # Held while loading, so that two threads with the same bytes get one module, loaded once.
    with _lock:
        if library.sha256 not in _modules:
            _modules[library.sha256] = _load_library(library)
        return _modules[library.sha256]


def _load_library(library: VerifiedContent) -> Any:
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")
    try:
        with _file(library) as path:
            return quietly(lambda: load(path, "so"))
    except OSError as error:
        raise BundleError(f"a stage's code cannot be loaded: {error.strerror or error}") from None
    except Exception as error:
        raise BundleError(f"a stage's code cannot be loaded: {reason(error)}; build the bundle again") from error


@contextlib.contextmanager
def _file(library: VerifiedContent) -> Iterator[str]:
    """Give the bytes a name for the system's loader, which takes files only.

    They lie in memory where the system can do that: a folder for temporary files may forbid to run what is in it.  The
    name has the checksum, since the loader returns what it has loaded before under the same name.
    """
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / f"{library.sha256}.so"
        try:
            memory = os.memfd_create(path.name)
        # Another system than Linux, or one that forbids it.
        except (AttributeError, OSError):
            path.write_bytes(library.array.data)
        else:
            stream = stack.enter_context(os.fdopen(memory, "wb"))
            stream.write(library.array.data)
            # The loader maps what the descriptor has; bytes in Python's buffer would be missing.
            stream.flush()
            # The descriptor's own name comes back for other bytes, once this one is closed.
            path.symlink_to(f"/proc/self/fd/{memory}")
        yield str(path)
