"""Frame memory: shared by server and client of one machine, for large tensors.

The server makes it, sealed so that nobody can take its pages away.  It says under which number it has it open; a client
that is not on the same machine, or is another user's, finds nothing there, and sends tensors as ever.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.remote.messages import MemoryOffer, TensorHead
from pipeline.system.memory import align_up

NAME = "soc-pipeline frames"
"""Name of the file, checked before it is opened: opening other files may have effects."""

SMALL = 1 << 18
"""Bytes of a frame's tensors below which a connection is as quick, or quicker."""

_HEAD = 64
"""Bytes in front of the tensors, beginning with the key."""

is_supported = hasattr(os, "memfd_create")


class FrameMemory:
    """One side's view: an area for tensors, and one for results.

    The open file belongs to this object from now on; the offer identifies the memory.
    """

    def __init__(self, descriptor: int, offer: MemoryOffer) -> None:
        self.offer, self._descriptor = offer, descriptor
        # Arrays keep the map; it ends with the last of them.
        self._bytes = np.frombuffer(mmap.mmap(descriptor, _size(offer)), np.uint8)
        self.requests = self._bytes[_HEAD : _HEAD + offer.request_bytes]
        self.answers = self._bytes[_HEAD + offer.request_bytes :]

    @classmethod
    def create(cls, request_bytes: int, answer_bytes: int) -> FrameMemory:
        """Allocate a server's memory for both ways; raises `OSError`."""
        descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            offer = MemoryOffer(os.getpid(), descriptor, secrets.token_bytes(16), request_bytes, answer_bytes)
            os.ftruncate(descriptor, _size(offer))
            # Else the other side could shorten the file, and whoever reads it then is killed.
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            memory = cls(descriptor, offer)
        except BaseException:
            os.close(descriptor)
            raise
        memory._bytes[: len(offer.key)] = np.frombuffer(offer.key, np.uint8)
        return memory

    @classmethod
    def attach(cls, offer: MemoryOffer) -> FrameMemory | None:
        """Return a server's offered memory, None on another machine."""
        path = Path(f"/proc/{offer.process}/fd/{offer.descriptor}")
        try:
            if not is_supported or not str(path.readlink()).startswith(f"/memfd:{NAME}"):
                return None
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            is_sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            # Numbers of processes are those of one machine, or of one container: the key is that of the memory.
            if is_sealed and os.fstat(descriptor).st_size == _size(offer):
                memory = cls(descriptor, offer)
                if memory._bytes[: len(offer.key)].tobytes() == offer.key:
                    return memory
        except OSError:
            pass
        os.close(descriptor)
        return None

    def close(self) -> None:
        """Give it up; arrays in it remain."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def area_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the area's bytes for tensors, at their smallest size."""
    return _starts([TensorHead(spec.dtype, tuple(map(abs, spec.shape))).nbytes for spec in specs])[-1]


def put(area: np.ndarray, arrays: Sequence[np.ndarray], heads: Sequence[TensorHead]) -> bool:
    """Copy arrays into an area; return False if too large or small."""
    starts = _starts([array.nbytes for array in arrays])
    if not SMALL <= starts[-1] <= area.nbytes:
        return False
    for target, array in zip(_views(area, heads), arrays, strict=True):
        np.copyto(target, array)
    return True


def views(area: np.ndarray, heads: Sequence[TensorHead]) -> list[np.ndarray]:
    """Return tensor views into an area; `ValueError` if they are larger than it."""
    if _starts([head.nbytes for head in heads])[-1] > area.nbytes:
        raise ValueError("tensors that are larger than the shared memory")
    return list(_views(area, heads))


def _views(area: np.ndarray, heads: Sequence[TensorHead]) -> Iterator[np.ndarray]:
    # Each begins where compiled kernels may use it in place.
    for head, (start, _) in zip(heads, pairwise(_starts([head.nbytes for head in heads])), strict=True):
        yield area[start : start + head.nbytes].view(head.dtype).reshape(head.shape)


def _starts(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(map(align_up, sizes), initial=0))


def _size(offer: MemoryOffer) -> int:
    return _HEAD + offer.request_bytes + offer.answer_bytes
