"""The one door to TVM: imported without its side effects, and with the lock that its compiler needs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

from pipeline.errors import MissingExtra

# TVM's importers, passes and compiler keep process-global stacks: two threads inside corrupt each other.
compiler_lock = threading.RLock()

# A file descriptor belongs to the process: two threads that swap it would each restore what the other one put there.
_descriptor_lock = threading.RLock()


def _check_ffi() -> None:
    version = importlib.metadata.version("apache-tvm-ffi")
    if not version.startswith("0.1.14"):
        raise MissingExtra(
            f"apache-tvm-ffi {version} is installed, but this version works with 0.1.14 only (0.1.15 crashes "
            "TVM 0.27); run: pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"
        )


_check_ffi()
# Where somebody else has imported TVM before, its hook is in place already.
_excepthook = sys.__excepthook__ if "tvm" in sys.modules else sys.excepthook
import tvm  # noqa: E402
import tvm_ffi  # noqa: E402

# TVM's own hook ends all multiprocessing children when the main thread meets an uncaught error.
sys.excepthook = _excepthook

__all__ = ["compiler_lock", "quiet", "tvm", "tvm_ffi"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back what native code prints to file descriptor 2; on an error it is printed after all."""
    with _descriptor_lock, tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        saved = os.dup(2)
        try:
            os.dup2(held.fileno(), 2)
            yield
        except BaseException:
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
