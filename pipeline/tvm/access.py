"""Door to TVM's compiler: imported without side effects, with its lock."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import threading
from pathlib import Path

from pipeline.errors import MissingExtra
from pipeline.system.distribution import REMEDY
from pipeline.tvm.runtime import tvm_ffi, without_torch

# TVM's importers, passes and compiler keep process-global stacks: two threads inside corrupt each other.
compiler_lock = threading.RLock()


def _load_cuda() -> None:
    """Load CUDA's runtime of the extra ``[cuda]``, if installed. The system's loader does not look there."""
    with contextlib.suppress(ImportError, OSError):
        for folder in importlib.import_module("nvidia.cu13").__path__:
            ctypes.CDLL(str(Path(folder) / "lib" / "libcudart.so.13"), ctypes.RTLD_GLOBAL)


# Where somebody else has imported TVM before, its hook is in place already.
_excepthook = sys.__excepthook__ if "tvm" in sys.modules else sys.excepthook
_load_cuda()
try:
    with without_torch():
        import tvm
except ModuleNotFoundError as error:
    if error.name != "tvm":
        raise
    raise MissingExtra(f"this needs all of TVM, and only its runtime is here; {REMEDY}") from None

# TVM's own hook ends all multiprocessing children when the main thread meets an uncaught error.
sys.excepthook = _excepthook

# It replaces TVM's, for whatever imports TVM by this door.  The library without the compiler has none.
if tvm.runtime.enabled("llvm"):
    importlib.import_module("pipeline.tvm.type_inference")

__all__ = ["compiler_lock", "tvm", "tvm_ffi"]
