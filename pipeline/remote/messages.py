"""The messages between a client and a server: typed, and checked when they are decoded.

Their tags are the words on the wire: they stay when a class gets another name.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.executor.manifest import StageFiles
from pipeline.executor.parameters import ITEM_BYTES, MOST_AXES

# Both ends must have the same: it grows with every change of a message, and the greeting compares it.
PROTOCOL = 5

LARGEST_FRAME = 1 << 30
"""Bytes that a stage's inputs may have together, and its outputs, unless a server is told otherwise."""

# Names, reasons, lines for the log: nothing that a peer says in words needs more.
Text = Annotated[str, Meta(max_length=4096)]
# No memory has more bytes: what is above that is refused while it is decoded.
Count = Annotated[int, Meta(ge=0, lt=1 << 48)]
# It becomes the name of a file: no other characters, so that no path can hide in it.
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class TensorHead(msgspec.Struct, frozen=True):
    """Dtype and shape of a tensor behind a message; its bytes follow, row by row, in the order of x86 and Arm."""

    dtype: Annotated[str, Meta(max_length=16)]
    shape: Annotated[tuple[Count, ...], Meta(max_length=MOST_AXES)]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"no tensor is made of {self.dtype!r}")

    def fits(self, spec: TensorSpec) -> bool:
        """Return True if a stage may read it; its extents are the code's to check, which may take several."""
        return self.dtype == spec.dtype and len(self.shape) == len(spec.shape)


class Greeting(msgspec.Struct, frozen=True, tag="Hello"):
    """A client begins; it wants to hear from the server every `beat_s` seconds while it waits."""

    protocol: int
    version: Text
    # Zero or less is no beat; how short it may be is for the session to say.
    beat_s: Annotated[float, Meta(gt=0)]
    # Through an encrypted connection only.
    token: Text = ""


class Welcome(msgspec.Struct, frozen=True, tag="Welcome"):
    """Description of a server."""

    protocol: int
    version: Text
    tvm: Text
    machine: Text
    processor: Text
    devices: tuple[Text, ...]
    cores: tuple[int, ...]
    memory_bytes: int
    uploads: bool
    # Processor of all these cores as LLVM calls it, empty if they are unlike; servers before this did not tell.
    core: Text = ""
    # How many stages run at once on its cores.
    slots: int = 1
    # Frames that the bundle that it runs works on at once; 0 if it runs none.
    bundle_slots: int = 0
    # Checksum of that bundle's manifest now, empty if it was never saved.
    bundle_version: Text = ""


class TargetRequest(msgspec.Struct, frozen=True, tag="AskTarget"):
    """A client wants to build for the server's processor."""


class TargetAnswer(msgspec.Struct, frozen=True, tag="Target"):
    """The processor, as TVM describes it."""

    description: dict[str, object]


class OpenRequest(msgspec.Struct, frozen=True, tag="Open"):
    """A client wants to run a stage; a stage without code has None."""

    device: Text
    stage: StagePlan
    code: StageFiles | None
    tvm: Text
    # The manifest of the stage's bundle and its signature, for servers that ask for one; empty if it is not signed.
    manifest: bytes = b""
    signature: bytes = b""


class MissingFiles(msgspec.Struct, frozen=True, tag="Missing"):
    """The server needs these files first, by their SHA-256; the client sends each as an `UploadRequest`."""

    digests: tuple[Digest, ...]


class UploadRequest(msgspec.Struct, frozen=True, tag="Upload"):
    """One file; its bytes follow."""

    digest: Digest
    nbytes: Count


class MemoryOffer(msgspec.Struct, frozen=True):
    """Memory for frames that a server shares with a client of the same machine, see `pipeline.remote.frame_memory`."""

    process: Annotated[int, Meta(gt=0)]
    descriptor: Annotated[int, Meta(ge=0)]
    key: Annotated[bytes, Meta(min_length=16, max_length=16)]
    request_bytes: Count
    answer_bytes: Count


class OpenAnswer(msgspec.Struct, frozen=True, tag="Opened"):
    """The stage is ready, under this number; memory is there for the first stage that needs so much."""

    program: int
    memory: MemoryOffer | None = None


class FrameRequest(msgspec.Struct, frozen=True, tag="Run"):
    """One frame for an opened stage; the inputs' bytes follow, or are in the memory that both share."""

    program: int
    tensors: tuple[TensorHead, ...]
    in_memory: bool = False


class FrameAnswer(msgspec.Struct, frozen=True, tag="Ran"):
    """The frame's results, whose bytes follow or are in shared memory, and how long the device worked for them."""

    tensors: tuple[TensorHead, ...]
    seconds: Annotated[float, Meta(ge=0)]
    in_memory: bool = False
    # Of a whole bundle, see `Welcome`.
    bundle_version: Text = ""


class FrameFailure(msgspec.Struct, frozen=True, tag="Failed"):
    """The stage raised an error on the frame; the next one may come."""

    error: Text


class Heartbeat(msgspec.Struct, frozen=True, tag="Alive"):
    """The server is still at it."""


class BusyAnswer(msgspec.Struct, frozen=True, tag="Busy"):
    """The server has no place at the moment, but may have one soon; it closes the connection."""

    reason: Text


class RefusalAnswer(msgspec.Struct, frozen=True, tag="Refused"):
    """The server will not; it closes the connection."""

    reason: Text


ClientMessage = Greeting | TargetRequest | OpenRequest | UploadRequest | FrameRequest
ServerMessage = (
    Welcome
    | TargetAnswer
    | MissingFiles
    | OpenAnswer
    | FrameAnswer
    | FrameFailure
    | Heartbeat
    | BusyAnswer
    | RefusalAnswer
)
