"""The one door to TVM: imported without its side effects, and with the lock that its compiler needs."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import sys
import threading
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

from pipeline.errors import MissingExtra

# TVM's importers, passes and compiler keep process-global stacks: two threads inside corrupt each other.
compiler_lock = threading.RLock()


def check_ffi(version: str) -> None:
    """Raise `MissingExtra` unless TVM works with this version of its FFI."""
    if not version.startswith("0.1.14"):
        raise MissingExtra(
            f"apache-tvm-ffi {version} is installed, but this version works with 0.1.14 only (0.1.15 crashes "
            "TVM 0.27); run: pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"
        )


class _TorchBlock(MetaPathFinder):
    """Hides PyTorch from the imports of one thread."""

    def __init__(self) -> None:
        # Others may import PyTorch meanwhile, and get it.
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse PyTorch in that thread, and leave all else to the other finders."""
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Import TVM without PyTorch, unless that is there already.

    The FFI imports it wherever it is installed, against clashes of symbols on Windows, and for tensors of PyTorch that
    are passed to TVM's functions directly.  That is five sixths of the time that a process needs to load a bundle, and
    with an older PyTorch it compiles an extension on the way.
    """
    block = _TorchBlock()
    sys.meta_path.insert(0, block)
    try:
        yield
    finally:
        sys.meta_path.remove(block)


def _load_cuda() -> None:
    """Load CUDA's runtime of the extra ``[cuda]``, if that is installed: the system's loader does not look there."""
    with contextlib.suppress(ImportError, OSError):
        for folder in importlib.import_module("nvidia.cu13").__path__:
            ctypes.CDLL(str(Path(folder) / "lib" / "libcudart.so.13"), ctypes.RTLD_GLOBAL)


# Before the import below, which is what a wrong version crashes in.
check_ffi(importlib.metadata.version("apache-tvm-ffi"))
# A helper of TVM's thread pool that has nothing to do spins before it sleeps: by default for more than 100 ms, so that
# a stage on two cores at 10 frames per second keeps one of them busy with waiting.  Some 2 ms are more than there are
# between two kernels of a frame, and waking up takes 0.05 ms.  Read once, when the first helper starts.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "5000")
# Where somebody else has imported TVM before, its hook is in place already.
_excepthook = sys.__excepthook__ if "tvm" in sys.modules else sys.excepthook
_load_cuda()
with _without_torch():
    import tvm
    import tvm_ffi

# TVM's own hook ends all multiprocessing children when the main thread meets an uncaught error.
sys.excepthook = _excepthook

__all__ = ["compiler_lock", "tvm", "tvm_ffi"]
