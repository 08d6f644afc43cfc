"""CUDA GPUs, through TVM's virtual machine, one stream per worker."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import PipelineError
from pipeline.executor.devices.accelerator import Accelerator, describe_tvm_device, tvm_indices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.executor.devices.cpu import VmStage
from pipeline.executor.stage_code import StageCode
from pipeline.system.distribution import install_command
from pipeline.tvm.access import tvm, tvm_ffi

# Replicas of a stage share its parameters, which are copied to the GPU once.
_parameters: weakref.WeakKeyDictionary[StageCode, dict[int, list[Any]]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()

# By the GPU's number: held from the start of a frame's kernels until they are done.
_kernel_locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

_LIBRARIES = {
    "libcuda.so.1": "the driver of NVIDIA's GPUs; install it",
    "libcudart.so.13": f"the runtime of CUDA 13; run: {install_command('cuda')}",
}
"""Libraries under TVM's part for GPUs, with their source."""


# The lower half of what every object of TVM's FFI begins with, see `TVMFFIObject` in its C interface.
_STRONG_REFERENCES = 0xFFFFFFFF


class CudaRuntime(DeviceRuntime):
    """Runs stages on one GPU; tensors stay in its memory.

    A worker waits for its own stream only. So with two replicas of a stage, the copies of one frame and the kernels of
    another one run at the same time. Kernels of two frames never do: TVM has one pool of memory for each GPU, which
    knows no streams, and gets a frame's workspace back when its kernels are started, not when they are done.

    Copies go through CUDA's default stream, since TVM takes no other one for them from Python, and end before the call
    does. So memory that is never swapped out would not make them faster.

    A `tvm_device`, such as a CPU, takes the place of the GPU of that number.
    """

    def __init__(self, device: Device, tvm_device: Any = None) -> None:
        super().__init__(device)
        self._device = tvm.cuda(device.index) if tvm_device is None else tvm_device
        self._stream: Any = None
        self._buffers = DeviceBuffers(self._device)

    @staticmethod
    def detect() -> list[Accelerator]:
        """Detect TVM's GPUs, with compute capability as architecture."""
        gpus = [describe_tvm_device("cuda", index) for index in tvm_indices("cuda")]
        return [
            replace(gpu, target={**gpu.target, "arch": f"sm_{gpu.version.replace('.', '')}"}) if gpu.version else gpu
            for gpu in gpus
        ]

    @staticmethod
    def why_absent(device: Device) -> str:
        """Explain why TVM finds no GPU of this number."""
        if device.index in tvm_indices("cuda"):
            return ""
        missing = [f"{name} is missing, {origin}" for name, origin in _LIBRARIES.items() if not _is_loadable(name)]
        return "; ".join([f"TVM finds no cuda device {device.index} here", *missing])

    def open(self, cores: Sequence[int]) -> None:  # noqa: ARG002 - the host's cores only start kernels
        """Make the worker's stream, or raise `PipelineError` without GPU."""
        if not self._device.exist:
            raise PipelineError(
                f"device {self.device.name!r}: TVM finds no CUDA device {self.device.index} on this machine; "
                "'soc-pipeline devices' lists those there are"
            )
        # TVM keeps the current stream per thread, so that workers do not wait for each other's kernels.
        self._stream = self._device.create_raw_stream()
        self._device.set_raw_stream(self._stream)

    def load(self, stage: StagePlan, code: StageCode) -> VmStage:  # noqa: ARG002 - the code says all
        """Make a virtual machine per thread, with shared code and parameters."""
        from tvm.runtime.vm import VirtualMachine

        machine = VirtualMachine(code.module(), [self._device, tvm.cpu()])
        # Held while copying, or replicas that open at the same time would each copy.
        with _lock:
            on_devices = _parameters.setdefault(code, {})
            if self.device.index not in on_devices:
                on_devices[self.device.index] = [self._copy(array, self._make) for array in code.parameters.values()]
        return VmStage(machine["main"], on_devices[self.device.index], machine)

    def run(self, program: VmStage, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one frame and wait for its outputs."""
        with _kernel_locks[self.device.index]:
            result = program.main(*inputs, *program.parameters)
            # Kernels are only started by the call; the next device may read the outputs at once.
            self._device.sync(self._stream)
        return [result] if isinstance(result, tvm.runtime.Tensor) else list(result)

    def copy_in(self, array: np.ndarray) -> Any:
        """Copy an array to the GPU, into an earlier frame's memory."""
        return self._copy(array, self._buffers.take)

    def copy_out(self, tensor: Any) -> np.ndarray:
        """Copy a tensor from the GPU."""
        array: np.ndarray = tensor.numpy()
        return array

    def _copy(self, array: np.ndarray, allocate: Callable[[tuple[int, ...], str], Any]) -> Any:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        tensor = allocate(array.shape, str(array.dtype))
        # TVM waits here until the array has been read, and the tensor written.
        tensor.copyfrom(array)
        return tensor

    def _make(self, shape: tuple[int, ...], dtype: str) -> Any:
        return tvm.runtime.empty(shape, dtype, self._device)

    def close(self) -> None:
        """Give the stream and the memory back."""
        self._buffers.clear()
        if self._stream is not None:
            self._device.sync(self._stream)
            # The default one: TVM's streams are numbers.
            self._device.set_raw_stream(0)
            self._device.free_raw_stream(self._stream)
            self._stream = None


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


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
