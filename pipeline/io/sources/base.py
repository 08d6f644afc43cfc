"""Source: interface of all origins of frames, and their registry entries."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.io.source_frame import SourceFrame
from pipeline.io.uri import Uri
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.executor.stage_code import StageCode
    from pipeline.picture.pixels import Pixels


class FrameSource(Closable):
    """Yields frames once; a context manager releasing its origin.

    A source of one's own has `__iter__`, and what differs of the attributes.
    """

    live = False
    """True if frames come at their own pace and are lost if nobody takes them."""
    owns_memory = False
    """True if each frame has memory of its own, which the pipeline need not copy."""
    pixels: Pixels | None = None
    """Format of all its frames, if they are pictures that have to be prepared for the model."""

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames."""
        raise NotImplementedError

    def close(self) -> None:
        """Release its origin."""


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True)
class SourceOptions:
    """Settings for opening a source."""

    specs: Sequence[TensorSpec] = ()
    """The model's inputs."""
    preparation: Preparation = field(default_factory=Preparation)
    """Preparation of images, which differ in size and so are prepared as they are read."""
    fps: float | None = None
    """Frames per second: what a camera is set to, or the pace at which a recording is played."""
    speed: float | None = None
    """Plays a recording at its own pace times this."""
    reconnect: float = 0.0
    """Seconds for which a camera or stream that was lost is tried again."""
    notice: Callable[[str], None] = _ignore
    """Function to call with losses."""
    quantizations: Sequence[Quantization] = ()
    """Scales of the model's quantised tensors."""
    pictures: StageCode | None = None
    """The bundle's kernels for pictures."""
    allow_commands: bool = False
    """True if the text is the user's own: commands and pipelines out of somebody else's file could do anything."""
    raw_pictures: bool = False
    """True for images as they are, which the reader prepares."""


@dataclass(frozen=True)
class SourceKind:
    """Registry entry: recognition and opening of a kind of source."""

    names: Sequence[str]
    """Kinds in front of the colon."""
    open: Callable[[Uri, SourceOptions], FrameSource]
    """Opens the source at a `Uri`."""
    example: str
    """Example for messages that say what is supported."""
    recognise: Callable[[Path], bool] = lambda _: False
    """Test for a path of such a source without a kind in front of it."""
    live: bool = False
    """True if frames come at their own pace; a live source may be opened again when it is lost."""
    takes_fps: bool = False
    """True if `open` heeds `SourceOptions.fps` itself; a recording is else played at that pace."""
    is_command: bool = False
    """True if the text is run, and so needs `SourceOptions.allow_commands`."""
    is_file: bool = False
    """True if the location is a file or folder, which has to be there."""
    options: Sequence[str] | None = ()
    """Names of the options that a text may have; None where `open` decides, as in an address."""


class PacedSource(FrameSource):
    """Frames of a recording, due at `fps` per second, or at `speed` times their own pace.

    The recording is closed with this source.
    """

    def __init__(self, source: FrameSource, fps: float | None = None, speed: float | None = None) -> None:
        self._source, self._fps, self._speed = source, fps, speed
        self.live, self.owns_memory, self.pixels = source.live, source.owns_memory, source.pixels

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield due frames; a late reader sees its delay."""
        begin, first = time.time(), None
        for number, frame in enumerate(self._source):
            # Recordings begin at any time; the first frame is due at once.
            first = frame.timestamp if first is None else first
            since = (frame.timestamp - first) / self._speed if self._speed else number / (self._fps or 1.0)
            # From the beginning and not from the frame before, so that delays do not add up.
            due = begin + since
            time.sleep(max(0.0, due - time.time()))
            yield dataclasses.replace(frame, ready=due)

    def close(self) -> None:
        """Close the recording."""
        self._source.close()
