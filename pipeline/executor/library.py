"""Libraries: stage code in this process, from verified bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import BundleError, reason
from pipeline.executor.verified_file import VerifiedContent
from pipeline.system.native_output import quietly
from pipeline.tvm.runtime import bind_functions, find_function, registry_lock

# TVM keeps what it loads until the process ends; so one module for all who load the same bytes costs nothing more.
_modules: dict[str, Any] = {}

# How many have been loaded.
_numbers = itertools.count()

_SORTS = re.compile(rb"tvm\.contrib\.sort\.\w+")


def module(library: VerifiedContent) -> Any:
    """Return a shared library's TVM module, one per content.

    Raises `BundleError` if it is none.
    """
    # Held while loading, so that two threads with the same bytes get one module, loaded once.
    with registry_lock:
        if library.sha256 not in _modules:
            _modules[library.sha256] = _load_library(library)
        return _modules[library.sha256]


def _load_library(library: VerifiedContent) -> Any:
    load = find_function("ffi.Module.load_from_file.so")
    try:
        with _file(library) as path:
            module = quietly(lambda: load(path, "so"))
            bind_functions(path, {name.decode() for name in _SORTS.findall(library.array.data)})
            return module
    except OSError as error:
        raise BundleError(f"a stage's code cannot be loaded: {error.strerror or error}") from None
    except Exception as error:
        raise BundleError(f"a stage's code cannot be loaded: {reason(error)}; build the bundle again") from error


@contextlib.contextmanager
def _file(library: VerifiedContent) -> Iterator[str]:
    """Name the bytes as a file for the system's loader.

    The bytes lie in memory where the system can do that: a folder for temporary files may forbid to run what is in it,
    or to write.  Each name is another one, since the loader returns what it has loaded before under the same name.
    """
    with contextlib.ExitStack() as stack:
        try:
            memory = os.memfd_create(library.sha256)
        # Another system than Linux, or one that forbids it.
        except (AttributeError, OSError):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="soc-pipeline-"))
            path = f"{folder}/{library.sha256}.so"
            Path(path).write_bytes(library.array.data)
        else:
            stream = stack.enter_context(os.fdopen(memory, "wb"))
            stream.write(library.array.data)
            # The loader maps what the descriptor has; bytes in Python's buffer would be missing.
            stream.flush()
            # A descriptor's number comes back for other bytes, once this one is closed: a number of our own, written in
            # steps that lead nowhere.  The thread's own descriptors, which need not be the process's.
            steps = f"{next(_numbers):b}".translate({ord("0"): "./", ord("1"): ".//"})
            path = f"/proc/thread-self/fd/{steps}{memory}"
        yield path
