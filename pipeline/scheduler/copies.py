"""Copies: the only place of memory changes, protecting callers' arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.inputs import AcceptedInputs
from pipeline.scheduler.wiring import SlotRead, StageWiring, Wiring
from pipeline.system.memory import snapshot


def copy_inputs(frame_inputs: AcceptedInputs, *, copy: bool) -> AcceptedInputs:
    """Copy the caller's arrays, or use them directly with ``copy=False``."""
    # Before the frame is in the books: a caller may change its arrays as soon as `submit` has returned.
    if not copy:
        return frame_inputs
    check, arrays, build, crop = frame_inputs
    return AcceptedInputs(check, [snapshot(array) for array in arrays], build, crop)


class TensorSlots(Protocol):
    """Tensors of a frame between stages, or between one stage's steps."""

    tensors: list[Any]

    def release(self, slot: int) -> None:
        """Count a finished reader of the slot; the last empties it."""

    def copy_lock(self) -> AbstractContextManager[Any]:
        """Return the lock for shared copies."""


class StageCopies:
    """Tensors read and written by one stage, in its worker's thread.

    `readers` counts the reads of each slot of the pipeline. Where `may_copy` is False, no tensor changes its memory
    here.
    """

    def __init__(self, runtime: DeviceRuntime, wiring: StageWiring, readers: Sequence[int]) -> None:
        self._runtime, self._reads = runtime, wiring.reads
        self._writes = tuple((write.slot, write.array) for write in wiring.writes)
        self.may_copy = wiring.copies
        # Most stages read each tensor alone: then there is nothing to count or to guard.
        self._is_alone = all(readers[slot] == 1 for read in wiring.reads for slot in read.slots)
        self._own_slots = tuple((read.slots[-1], read.source is not None) for read in wiring.reads)
        self._shared_slots = {read.slot for read in wiring.reads if read.source is not None and readers[read.slot] > 1}

    def take(self, frame: TensorSlots) -> list[Any]:
        """Return inputs in the stage's memory, releasing their last reads."""
        if self._is_alone:
            tensors, inputs = frame.tensors, []
            for slot, is_elsewhere in self._own_slots:
                inputs.append(self._runtime.copy_in(tensors[slot]) if is_elsewhere else tensors[slot])
                tensors[slot] = None
            return inputs
        return [self._take(frame, read) for read in self._reads]

    def leave(self, frame: TensorSlots, outputs: Sequence[Any]) -> None:
        """Store outputs for later stages and the caller, dropping unread ones."""
        if len(outputs) != len(self._writes):
            raise ValueError(f"the stage returned {len(outputs)} outputs; its plan says {len(self._writes)}")
        tensors = frame.tensors
        for (slot, array), tensor in zip(self._writes, outputs, strict=True):
            if slot is not None:
                tensors[slot] = tensor
            if array is not None:
                # In the maker's thread: no other may use its runtime.  It is done once, for all readers elsewhere.
                tensors[array] = self._runtime.copy_out(tensor)

    def _take(self, frame: TensorSlots, read: SlotRead) -> Any:
        if read.slot in self._shared_slots:
            # Two stages may come for one array at the same time: the second one waits, and finds the first one's copy.
            with frame.copy_lock():
                tensor = frame.tensors[read.slot] = self._bring(frame, read)
        else:
            tensor = self._bring(frame, read)
        for slot in read.slots:
            frame.release(slot)
        return tensor

    def _bring(self, frame: TensorSlots, read: SlotRead) -> Any:
        tensor = frame.tensors[read.slot]
        if tensor is None and read.source is not None:
            tensor = self._runtime.copy_in(frame.tensors[read.source])
        return tensor


def output_arrays(frame: Frame, wiring: Wiring) -> list[np.ndarray]:
    """Return output arrays, without memory shared with callers' arrays."""
    arrays = [frame.tensors[slot] for slot in wiring.outputs]
    # Frames whose inputs were copied share nothing with their caller.
    if not frame.caller_arrays:
        return arrays
    return [_unshare(array, frame.caller_arrays) for array in arrays]


def _unshare(array: np.ndarray, caller_arrays: Sequence[np.ndarray]) -> np.ndarray:
    # Bounds are compared, not elements: exact answers may take exponential time, and a copy too many does no harm.
    return array.copy() if any(np.may_share_memory(array, caller_array) for caller_array in caller_arrays) else array
