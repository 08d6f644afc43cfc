"""CPU cores, through TVM's virtual machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.board import Device
from pipeline.executor.code import StageCode
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.memory import is_usable
from pipeline.plans import StagePlan
from pipeline.tvm_access import tvm


class Program(NamedTuple):
    """A stage's entry point with its parameters; the machine is kept alive with it."""

    main: Any
    parameters: list[Any]
    machine: Any


class CpuRuntime(DeviceRuntime):
    """Runs stages on the host's cores; tensors are TVM's and pass between stages by reference."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._tvm_device = tvm.cpu(device.index)

    def open(self, cores: Sequence[int]) -> None:
        """Keep the calling thread, and the threads that its kernels use, on `cores`.

        TVM's thread pool belongs to the thread that first calls it, and would pin itself to the first cores
        of the machine, the same ones for every stage, unless told before.  Cores that this process may not use,
        of a bundle from a larger machine, are left out; if none remains the thread goes where the system likes.
        """
        own = sorted(set(cores) & os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else list(cores)
        if not own:
            return
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, own)
        configure = tvm.get_global_func("runtime.config_threadpool")
        configure(-2, len(own), [str(core) for core in own])

    def load(self, stage: StagePlan, code: StageCode) -> Program:  # noqa: ARG002 - the code says all
        """Make a virtual machine for the calling thread; machines of one stage share code and parameters."""
        from tvm.runtime.vm import VirtualMachine

        machine = VirtualMachine(code.module(), self._tvm_device)
        return Program(machine["main"], [self.copy_in(array) for array in code.parameters.values()], machine)

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one frame; the outputs' memory is reused only after the last reference to them is gone."""
        made = program.main(*inputs, *program.parameters)
        return [made] if isinstance(made, tvm.runtime.Tensor) else list(made)

    def copy_in(self, array: np.ndarray) -> Any:
        """Share the array's memory where it is aligned, contiguous and writable; copy it otherwise."""
        array = np.asarray(array, array.dtype.newbyteorder("="))
        if is_usable(array):
            return tvm.runtime.from_dlpack(array)
        return tvm.runtime.tensor(array, self._tvm_device)

    def copy_out(self, tensor: Any) -> np.ndarray:
        """Return an array on the tensor's own memory, and keep that alive."""
        return np.from_dlpack(tensor)
