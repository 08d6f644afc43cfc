"""The messages between a client and a server: typed, and checked when they are decoded."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from pipeline.executor.manifest import Stage
from pipeline.plans import StagePlan, TensorSpec

PROTOCOL = 2

ITEM_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""What a tensor may be made of."""

LARGEST_FRAME = 1 << 30
"""Bytes that a stage's inputs may have together, and its outputs, unless a server is told otherwise."""

Text = Annotated[str, Meta(max_length=4096)]
Count = Annotated[int, Meta(ge=0, lt=1 << 48)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Tensor(msgspec.Struct, frozen=True):
    """What one tensor behind a message is; its bytes follow, row by row, in the order of x86 and Arm."""

    dtype: Annotated[str, Meta(max_length=16)]
    shape: Annotated[tuple[Count, ...], Meta(max_length=32)]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"no tensor is made of {self.dtype!r}")

    def fits(self, spec: TensorSpec) -> bool:
        """Whether a stage may read it; its extents are the code's to check, which may take several."""
        return self.dtype == spec.dtype and len(self.shape) == len(spec.shape)


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A client begins; it wants to hear from the server every `beat_s` seconds while it waits."""

    protocol: int
    version: Text
    beat_s: Annotated[float, Meta(gt=0)]


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """What a server is."""

    protocol: int
    version: Text
    tvm: Text
    machine: Text
    processor: Text
    devices: tuple[Text, ...]
    cores: tuple[int, ...]
    memory_bytes: int
    uploads: bool


class AskTarget(msgspec.Struct, frozen=True, tag=True):
    """A client wants to build for the server's processor."""


class Target(msgspec.Struct, frozen=True, tag=True):
    """The processor, as TVM describes it."""

    description: dict[str, object]


class Open(msgspec.Struct, frozen=True, tag=True):
    """A client wants to run a stage; a stage without code has None."""

    device: Text
    stage: StagePlan
    code: Stage | None
    tvm: Text


class Missing(msgspec.Struct, frozen=True, tag=True):
    """The server needs these files first, by their SHA-256; the client sends each as an `Upload`."""

    digests: tuple[Digest, ...]


class Upload(msgspec.Struct, frozen=True, tag=True):
    """One file; its bytes follow."""

    digest: Digest
    nbytes: Count


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The stage is ready, under this number."""

    program: int


class Run(msgspec.Struct, frozen=True, tag=True):
    """One frame for an opened stage; the inputs' bytes follow."""

    program: int
    tensors: tuple[Tensor, ...]


class Ran(msgspec.Struct, frozen=True, tag=True):
    """The frame's results, whose bytes follow, and how long the device worked for them."""

    tensors: tuple[Tensor, ...]
    seconds: Annotated[float, Meta(ge=0)]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The stage raised an error on the frame; the next one may come."""

    error: Text


class Alive(msgspec.Struct, frozen=True, tag=True):
    """The server is still at it."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The server will not; it closes the connection."""

    reason: Text


Request = Hello | AskTarget | Open | Upload | Run
Answer = Welcome | Target | Missing | Opened | Ran | Failed | Alive | Refused
