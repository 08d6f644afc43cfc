"""DeviceBuffers: device memory for copied tensors, reused across frames."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from typing import Any

from pipeline.tvm.access import tvm, tvm_ffi

# The lower half of what every object of TVM's FFI begins with, see `TVMFFIObject` in its C interface.
_STRONG_REFERENCES = 0xFFFFFFFF


class DeviceBuffers:
    """Tensors by shape and dtype, reused once unreferenced.

    So there are as many as were in use at once.  A driver's own allocation may take as long as a small stage, and
    giving memory back waits for all that runs on a GPU.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        # By shape and type: the address of each tensor, and the array that keeps it.
        self._buffers: defaultdict[tuple[tuple[int, ...], str], list[tuple[int, Any]]] = defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a tensor of undefined contents, free of other users."""
        buffers = self._buffers[shape, dtype]
        for address, keeper in buffers:
            # Counted by TVM, not by Python: a stage may return its input, and a machine keep it until its next run.
            if ctypes.c_uint64.from_address(address).value & _STRONG_REFERENCES == 1:
                return keeper[0]
        tensor = tvm.runtime.empty(shape, dtype, self._device)
        buffers.append((tensor.__chandle__(), tvm_ffi.Array([tensor])))
        return tensor

    def clear(self) -> None:
        """Free the unused tensors."""
        self._buffers.clear()
