"""Source: interface of all origins of frames, and their registry entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.io.uri import Uri
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.executor.stage_code import StageCode
    from pipeline.io.source_frame import SourceFrame
    from pipeline.picture.pixels import Pixels


class FrameSource(Closable):
    """Yields frames once; a context manager releasing its origin.

    A source of one's own has `__iter__`, and what differs of the attributes.

    Attributes
    ----------
    live : bool
        True if frames come at their own pace and are lost if nobody takes them.
    owns_memory : bool
        True if each frame has memory of its own, which the pipeline need not copy.
    pixels : Pixels or None
        Format of all its frames, if they are pictures that have to be prepared for the model.
    """

    live = False
    owns_memory = False
    pixels: Pixels | None = None

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames."""
        raise NotImplementedError

    def close(self) -> None:
        """Release its origin."""


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True)
class SourceOptions:
    """Settings for opening a source.

    Attributes
    ----------
    specs : sequence of TensorSpec
        The model's inputs.
    preparation : Preparation
        Preparation of images, which differ in size and so are prepared as they are read.
    fps : float, optional
        Frames per second: what a camera is set to, or the pace at which a recording is played.
    speed : float, optional
        Plays a recording at its own pace times this.
    reconnect : float
        Seconds for which a camera or stream that was lost is tried again.
    notice : callable
        Function to call with losses.
    quantizations : sequence of Quantization
        Scales of the model's quantised tensors.
    pictures : StageCode, optional
        The bundle's kernels for pictures.
    allow_commands : bool
        True if the text is the user's own: commands and pipelines out of somebody else's file could do anything.
    raw_pictures : bool
        True for images as they are, which the reader prepares.
    """

    specs: Sequence[TensorSpec] = ()
    preparation: Preparation = field(default_factory=Preparation)
    fps: float | None = None
    speed: float | None = None
    reconnect: float = 0.0
    notice: Callable[[str], None] = _ignore
    quantizations: Sequence[Quantization] = ()
    pictures: StageCode | None = None
    allow_commands: bool = False
    raw_pictures: bool = False


@dataclass(frozen=True)
class SourceKind:
    """Registry entry: recognition and opening of a kind of source.

    Attributes
    ----------
    names : sequence of str
        Kinds in front of the colon.
    open : callable
        Opens the source at a `Uri`; refuses options in it that it does not know.
    example : str
        Example for messages that say what is supported.
    recognise : callable
        Test for a path of such a source without a kind in front of it.
    live : bool
        True if frames come at their own pace; a live source may be opened again when it is lost.
    takes_fps : bool
        True if `open` heeds `SourceOptions.fps` itself; a recording is else played at that pace.
    is_command : bool
        True if the text is run, and so needs `SourceOptions.allow_commands`.
    """

    names: Sequence[str]
    open: Callable[[Uri, SourceOptions], FrameSource]
    example: str
    recognise: Callable[[Path], bool] = lambda _: False
    live: bool = False
    takes_fps: bool = False
    is_command: bool = False
