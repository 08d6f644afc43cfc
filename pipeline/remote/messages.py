"""Messages between client and server: typed, and checked at decoding.

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
"""Upper bound on the bytes of a stage's inputs, and of its outputs, by default."""

# Names, reasons, lines for the log: nothing that a peer says in words needs more.
Text = Annotated[str, Meta(max_length=4096)]
# No memory has more bytes: what is above that is refused while it is decoded.
Count = Annotated[int, Meta(ge=0, lt=1 << 48)]
# It becomes the name of a file: no other characters, so that no path can hide in it.
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class TensorHead(msgspec.Struct, frozen=True):
    """Dtype and shape of a tensor; its little-endian, row-major bytes follow."""

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
        """Test against a stage's spec; the code checks its own extents."""
        return self.dtype == spec.dtype and len(self.shape) == len(spec.shape)


class Greeting(msgspec.Struct, frozen=True, tag="Hello"):
    """Start of a client; waiting, it expects signs of life per `beat_s`."""

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
    """Request to run a stage, with None for code-free ones."""

    device: Text
    stage: StagePlan
    code: StageFiles | None
    tvm: Text
    # The manifest of the stage's bundle and its signature, for servers that ask for one; empty if it is not signed.
    manifest: bytes = b""
    signature: bytes = b""


class MissingFiles(msgspec.Struct, frozen=True, tag="Missing"):
    """Files missing on the server, by SHA-256, to be sent as `UploadRequest`."""

    digests: tuple[Digest, ...]


class UploadRequest(msgspec.Struct, frozen=True, tag="Upload"):
    """One file; its bytes follow."""

    digest: Digest
    nbytes: Count


class MemoryOffer(msgspec.Struct, frozen=True):
    """Offer of memory to a client of the same machine; see `pipeline.remote.frame_memory`."""

    process: Annotated[int, Meta(gt=0)]
    descriptor: Annotated[int, Meta(ge=0)]
    key: Annotated[bytes, Meta(min_length=16, max_length=16)]
    request_bytes: Count
    answer_bytes: Count


class OpenAnswer(msgspec.Struct, frozen=True, tag="Opened"):
    """Number of a ready stage, with memory for the first large one."""

    program: int
    memory: MemoryOffer | None = None


class FrameRequest(msgspec.Struct, frozen=True, tag="Run"):
    """Frame for an opened stage; input bytes follow, or are shared."""

    program: int
    tensors: tuple[TensorHead, ...]
    in_memory: bool = False


class FrameAnswer(msgspec.Struct, frozen=True, tag="Ran"):
    """Results of a frame, bytes following or shared, and the device's time."""

    tensors: tuple[TensorHead, ...]
    seconds: Annotated[float, Meta(ge=0)]
    in_memory: bool = False
    # Of a whole bundle, see `Welcome`.
    bundle_version: Text = ""


class FrameFailure(msgspec.Struct, frozen=True, tag="Failed"):
    """Error of a stage on a frame; the next frame may come."""

    error: Text


class Heartbeat(msgspec.Struct, frozen=True, tag="Alive"):
    """The server is still at it."""


class BusyAnswer(msgspec.Struct, frozen=True, tag="Busy"):
    """Refusal for lack of room, probably temporary; closes the connection."""

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
