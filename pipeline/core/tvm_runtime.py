"""The door to TVM's runtime: stages run through TVM's FFI alone; neither TVM's package nor PyTorch is imported."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from pipeline.core.tvm_library import library, package_version
from pipeline.errors import MissingExtra

POOLED_ALLOCATOR = 2
"""TVM's `AllocatorType::kPooled`: memory of a frame is kept for the next one."""


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
def without_torch() -> Iterator[None]:
    """Import TVM without PyTorch, unless that is there already.

    The FFI imports it wherever it is installed, against clashes of symbols on Windows, and for tensors of PyTorch that
    are passed to TVM's functions directly.  That is five sixths of the time that a process needs to load a bundle, and
    with an older PyTorch it compiles an extension on the way.  There is no switch that would keep it out.
    """
    block = _TorchBlock()
    sys.meta_path.insert(0, block)
    try:
        yield
    finally:
        sys.meta_path.remove(block)


# Before the import below, which is what a wrong version crashes in.
check_ffi(package_version("tvm_ffi"))
# A helper of TVM's thread pool that has nothing to do spins before it sleeps: by default for more than 100 ms, so that
# a stage on two cores at 10 frames per second keeps one of them busy with waiting.  Some 2 ms are more than there are
# between two kernels of a frame, and waking up takes 0.05 ms.  Read once, when the first helper starts.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "5000")
with without_torch():
    import tvm_ffi

# Globally, as TVM's own package loads it: its other libraries find what they need there.
_library = ctypes.CDLL(str(library()), ctypes.RTLD_GLOBAL)


def virtual_machine(module: Any, devices: Sequence[Any]) -> Any:
    """Return a virtual machine for the calling thread, from which functions are taken by name.

    Parameters
    ----------
    module : tvm_ffi.Module
        A stage's code.
    devices : sequence of tvm_ffi.Device
        What it runs on; the CPU comes last.
    """
    machine = module["vm_load_executable"]()
    machine["vm_initialization"](
        *(number for each in devices for number in (each.dlpack_device_type(), each.index, POOLED_ALLOCATOR))
    )
    return machine


def empty_tensor(shape: Sequence[int], dtype: str, device: Any) -> Any:
    """Return a tensor on a device, of any contents."""
    allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    return allocate(tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), device, None)


__all__ = ["check_ffi", "empty_tensor", "tvm_ffi", "virtual_machine", "without_torch"]
