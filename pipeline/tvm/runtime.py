"""Door to TVM's runtime through its FFI alone.

Neither TVM's package nor PyTorch is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from pipeline.core import packed_model
from pipeline.errors import MissingExtra
from pipeline.tvm.library import SORTS, library, package_version

registry_lock = threading.RLock()
"""Guard of TVM's table of functions, which has no lock: held by whoever adds to it, or looks a function up by its name.
TVM's import adds two thousand, loading a library and making a virtual machine look many up. Code under it imports
nothing of this project."""

# A child has a copy of the table, which must not be half written, and nobody who releases another thread's lock.
os.register_at_fork(
    before=registry_lock.acquire, after_in_parent=registry_lock.release, after_in_child=registry_lock.release
)

POOLED_ALLOCATOR = 2
"""TVM's `AllocatorType::kPooled`: memory of a frame is kept for the next one."""


def check_ffi(version: str) -> None:
    """Raise `MissingExtra` for an FFI unfit for TVM."""
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
        """Refuse PyTorch in that thread; leave the rest to other finders."""
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """Import TVM under its lock, without PyTorch.

    The FFI imports PyTorch wherever it is installed, against clashes of symbols on Windows, and for tensors of PyTorch
    that are passed to TVM's functions directly.  That is five sixths of the time that a process needs to load a bundle,
    and with an older PyTorch it compiles an extension on the way.  There is no switch that would keep it out.
    """
    block = _TorchBlock()
    with registry_lock:
        # New lists: another thread that goes through the finders would miss one if its list changed meanwhile.
        sys.meta_path = [block, *sys.meta_path]
        try:
            yield
        finally:
            sys.meta_path = [finder for finder in sys.meta_path if finder is not block]


# Before the import below, which is what a wrong version crashes in.
check_ffi(package_version("tvm_ffi"))
# A helper of TVM's thread pool that has nothing to do spins before it sleeps: by default for more than 100 ms, so that
# a stage on two cores at 10 frames per second keeps one of them busy with waiting.  Some 2 ms are more than there are
# between two kernels of a frame, and waking up takes 0.05 ms.  Read once, when the first helper starts.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "5000")
with without_torch():
    import tvm_ffi

    # Else an interrupt in a function that TVM calls comes back as a RuntimeError, and ends in a traceback.
    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
    # Globally, as TVM's own package loads it: its other libraries find what they need there.
    _library = ctypes.CDLL(str(library()), ctypes.RTLD_GLOBAL)
    # Now, and not with the first stage that sorts: by then others look functions up.
    if (_sorts := library().with_name(SORTS)).is_file():
        ctypes.CDLL(str(_sorts))


def add_function(kind: str) -> None:
    """Let compiled code call the library of packed models of a kind."""
    with registry_lock:
        # Overrides what a copy of this module has registered, as after a reload.
        tvm_ffi.register_global_func(
            packed_model.function_name(kind), functools.partial(packed_model.compute, kind), override=True
        )


for _kind in packed_model.RUNTIMES:
    add_function(_kind)


@functools.cache
def find_function(name: str) -> Any:
    """Return a function of TVM's table."""
    with registry_lock:
        return tvm_ffi.get_global_func(name)


def bind_functions(path: str, names: Iterable[str]) -> None:
    """Bind a loaded library to functions of TVM's table now.

    An unbound library looks for them in its first frame, without the lock.  Functions that are not there are left out:
    the frame that needs them has the error.
    """
    function = ctypes.c_void_p()
    with registry_lock:
        for name in names:
            if tvm_ffi.get_global_func(name, allow_missing=True) is not None:
                # Code calls this in the same way, and the module keeps what came of it.
                module = ctypes.c_void_p.in_dll(ctypes.CDLL(path), "__tvm_ffi__library_ctx")
                tvm_ffi.LIB.TVMFFIEnvModLookupFromImports(module, name.encode(), ctypes.byref(function))


def virtual_machine(module: Any, devices: Sequence[Any]) -> Any:
    """Return a virtual machine for the calling thread.

    Of the run's devices, the CPU comes last.
    """
    numbers = [number for device in devices for number in (device.dlpack_device_type(), device.index, POOLED_ALLOCATOR)]
    with registry_lock:
        machine = module["vm_load_executable"]()
        machine["vm_initialization"](*numbers)
    return machine


def empty_tensor(shape: Sequence[int], dtype: str, device: Any) -> Any:
    """Return a tensor on a device, of any contents."""
    allocate = find_function("runtime.TVMTensorAllocWithScope")
    return allocate(tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), device, None)


__all__ = [
    "bind_functions",
    "check_ffi",
    "empty_tensor",
    "find_function",
    "registry_lock",
    "tvm_ffi",
    "virtual_machine",
    "without_torch",
]
