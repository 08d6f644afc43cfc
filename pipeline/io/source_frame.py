"""Source frame: a pipeline input with name and capture time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.tensor_quantization import Quantization, numbers

if TYPE_CHECKING:
    from pipeline.io.results import Result
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels

SECOND = 1_000_000_000
"""Nanoseconds."""


@dataclass(frozen=True)
class SourceFrame:
    """A pipeline input, as yielded by a source.

    Attributes
    ----------
    name : str
        Name of the frame; sinks that write one file per frame use it.
    inputs : array, or mapping of str to array
        Inputs of `Pipeline.submit`.
    stamp : int
        Time of capture in nanoseconds, which a float of seconds could not tell apart: by `time.time_ns` if it is live,
        as recorded otherwise (of a video file, from its beginning).
    ready : float
        Time at which it could first be had, by `time.time`; latencies and deadlines count from here.  Of a live source
        this is `timestamp`; of a recording, when it was read, or when its turn was.
    pixels : Pixels, optional
        Format of `inputs` as a picture.
    frame_id : str
        Coordinates of the frame, if its message of ROS 2 named them.
    geometry : Geometry, optional
        Position of its picture in the model's input, of a photo that was prepared where it was read.
    picture : array, optional
        uint8 [height, width, 3] of such a photo.
    """

    name: str
    inputs: np.ndarray | Mapping[str, np.ndarray]
    stamp: int
    ready: float = field(default_factory=time.time)
    pixels: Pixels | None = None
    frame_id: str = ""
    geometry: Geometry | None = None
    picture: np.ndarray | None = None

    @property
    def timestamp(self) -> float:
        """Time of the capture in seconds."""
        # A float of seconds since 1970 is exact to a quarter of a microsecond.
        return self.stamp / SECOND

    def placement(self, geometry: Geometry | None) -> tuple[Geometry | None, tuple[int, int] | None]:
        """Return the position of its picture in the model's input, and the picture's width and height.

        Parameters
        ----------
        geometry : Geometry or None
            Position of the source's pictures; that of a photo is the frame's own.
        """
        if self.geometry is not None and self.picture is not None:
            return self.geometry, (self.picture.shape[1], self.picture.shape[0])
        return geometry, None if self.pixels is None else (self.pixels.width, self.pixels.height)


@dataclass(frozen=True)
class FrameResult:
    """A frame with its outputs.

    Attributes
    ----------
    frame : SourceFrame
    outputs : mapping of str to array
        Outputs by name.
    number : int
        The frame's sequence number in the pipeline; numbers of frames that were dropped are missing.
    seconds : float
        Seconds from `SourceFrame.ready` to the result.
    quantization : sequence of Quantization
        Quantization of those outputs whose integers stand for other numbers.
    result : Result, optional
        Decoded outputs in the pixels of the frame's picture, of a model with a decoder.
    """

    frame: SourceFrame
    outputs: Mapping[str, Any]
    number: int = 0
    seconds: float = 0.0
    quantization: Sequence[Quantization] = ()
    result: Result | None = None

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Outputs, dequantised to scores or pixels."""
        return numbers(self.outputs, self.quantization)
