"""CPU cores, through TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import PipelineError
from pipeline.executor import core_kinds, host_target, source_runtimes
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.executor.stage_code import StageCode
from pipeline.system import affinity, denormals
from pipeline.system.memory import ALIGNMENT, is_usable, snapshot
from pipeline.tvm.runtime import empty_tensor, find_function, tvm_ffi, virtual_machine


class VmStage(NamedTuple):
    """Entry point and parameters of a stage; keeps its machine alive."""

    main: Any
    parameters: list[Any]
    machine: Any


class CpuRuntime(DeviceRuntime):
    """Runs stages on host cores; TVM tensors pass by reference."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._tvm_device = tvm_ffi.device("cpu", device.index)
        self._processor = ""

    @staticmethod
    def why_absent(device: Device) -> str:
        """Explain why the target needs another processor, or raise `PipelineError`."""
        try:
            machine, features = host_target.needs(host_target.target(device.target))
        except Exception as error:  # noqa: BLE001 - TVM raises what it likes
            raise PipelineError(f"device {device.name!r} has a target that TVM does not take: {error}") from None
        # Without the advice behind the semicolon, which is for whoever loads a bundle.
        return host_target.misfit(machine, features).partition(";")[0]

    def thread_kind(self, cores: Sequence[int]) -> Hashable:
        """Return the cores: TVM's thread pool ends only with its thread."""
        # One core needs no pool.  But memory that a thread has asked for is kept for threads to come: were each load to
        # have a new one, what is left free between TVM's own remains would be 50 kB more with each load.
        return ("tvm", *_usable(cores))

    def open(self, cores: Sequence[int]) -> None:
        """Pin the calling thread and its kernels' threads to `cores`.

        TVM's thread pool belongs to the thread that first calls it, and would pin itself to the first cores
        of the machine, the same ones for every stage, unless told before.  Cores that this process may not use,
        of a bundle from a larger machine, are left out; if none remains the thread goes where the system likes.
        Denormals are zeros from here on.
        """
        # Before the pool starts threads, which inherit it.
        denormals.flush_to_zero()
        core_numbers = _usable(cores)
        self._processor = core_kinds.processor(core_numbers, self.device)
        if not core_numbers:
            return
        affinity.pin(core_numbers)
        configure = find_function("runtime.config_threadpool")
        # TVM's `kSpecifyOneCorePerThread`: one thread for each core of the list.
        configure(-2, len(core_numbers), [str(core) for core in core_numbers])

    def load(self, stage: StagePlan, code: StageCode) -> VmStage:  # noqa: ARG002 - the code says all
        """Make a virtual machine per thread, with shared code and parameters."""
        code = code.for_processor(self._processor)
        machine = virtual_machine(code.module(), [self._tvm_device])
        if code.runtimes:
            # The thread may have computed the stage before, for a pipeline that is closed.
            source_runtimes.restart(source_runtimes.digests(code.parameters.values()))
        return VmStage(machine["main"], [self.copy_in(array) for array in code.parameters.values()], machine)

    def run(self, program: VmStage, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one frame; output memory is reused after the last reference."""
        result = program.main(*inputs, *program.parameters)
        return [result] if isinstance(result, tvm_ffi.Tensor) else list(result)

    def copy_in(self, array: np.ndarray) -> Any:
        """Share an aligned, contiguous, writable array's memory; copy any other."""
        if not array.dtype.isnative:  # DLPack has no byte order but the machine's own
            array = np.asarray(array, array.dtype.newbyteorder("="))
        if not array.size:
            # NumPy's strides of what has no element are not those that kernels expect.
            return empty_tensor(array.shape, array.dtype.name, self._tvm_device)
        return tvm_ffi.from_dlpack(
            array if is_usable(array) else snapshot(array), require_alignment=ALIGNMENT, require_contiguous=True
        )

    def copy_out(self, tensor: Any) -> np.ndarray:
        """Return an array on the tensor's memory, keeping it alive."""
        return np.from_dlpack(tensor)


def _usable(cores: Sequence[int]) -> list[int]:
    return sorted(set(cores) & set(affinity.process_cores())) if affinity.CAN_PIN else list(cores)
