"""Source frame: a pipeline input with name and capture time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.core.tensor_quantization import Quantization, numbers
from pipeline.errors import InputError
from pipeline.io.results import Detections, FrameResults, Result
from pipeline.picture.geometry import Geometry
from pipeline.picture.pixels import Pixels

SECOND = 1_000_000_000
"""Nanoseconds."""


@dataclass(frozen=True)
class SourceFrame:
    """A pipeline input, as yielded by a source."""

    name: str
    """Name of the frame; sinks that write one file per frame use it."""
    inputs: np.ndarray | Mapping[str, np.ndarray]
    """Inputs of `Pipeline.submit`."""
    stamp: int
    """Time of capture in nanoseconds, which a float of seconds could not tell apart: by `time.time_ns` if it is live,
    as recorded otherwise (of a video file, from its beginning)."""
    ready: float = field(default_factory=time.time)
    """Time at which it could first be had, by `time.time`; latencies and deadlines count from here. Of a live source
    this is `timestamp`; of a recording, when it was read, or when its turn was."""
    pixels: Pixels | None = None
    """Format of `inputs` as a picture."""
    frame_id: str = ""
    """Coordinates of the frame, if its message of ROS 2 named them."""
    geometry: Geometry | None = None
    """Position of its picture in the model's input, of a photo that was prepared where it was read."""
    picture: np.ndarray | None = None
    """uint8 [height, width, 3] of such a photo."""

    @property
    def timestamp(self) -> float:
        """Time of the capture in seconds."""
        # A float of seconds since 1970 is exact to a quarter of a microsecond.
        return self.stamp / SECOND

    def placement(self, geometry: Geometry | None) -> tuple[Geometry | None, tuple[int, int] | None]:
        """Return the position of its picture in the model's input, and the picture's width and height.

        `geometry`: position of the source's pictures; that of a photo is the frame's own.
        """
        if self.geometry is not None and self.picture is not None:
            return self.geometry, (self.picture.shape[1], self.picture.shape[0])
        return geometry, None if self.pixels is None else (self.pixels.width, self.pixels.height)

    def read_picture(self) -> tuple[Pixels, np.ndarray]:
        """Return the source's picture and its format, or raise `InputError`."""
        if self.picture is not None:
            return Pixels("rgb24", self.picture.shape[1], self.picture.shape[0]), self.picture
        if self.pixels is None or not isinstance(self.inputs, np.ndarray):
            raise InputError(f"{self.name}: neither the source nor the model gives a picture")
        return self.pixels, self.inputs


@dataclass(frozen=True)
class StreamFrame:
    """A frame with its outputs, as `pipeline.stream` and sinks get it."""

    frame: SourceFrame
    outputs: Mapping[str, Any]
    """Outputs of the model, by name."""
    sequence: int = 0
    """Number of the frame in the pipeline; numbers of frames that were dropped are missing."""
    seconds: float = 0.0
    """Seconds from `SourceFrame.ready` to the result."""
    quantization: Sequence[Quantization] = ()
    """Quantization of those outputs whose integers stand for other numbers."""
    result: Result | FrameResults | None = None
    """Decoded outputs in the picture's pixels; None of a model without a decoder."""
    decoders: Sequence[str] = field(default=(), repr=False)
    """Decoders that such a model may have."""
    stream: str = ""
    """Name of its stream in an application."""

    @property
    def name(self) -> str:
        """Name of the frame in its source."""
        return self.frame.name

    @property
    def timestamp(self) -> float:
        """Time of the capture in seconds; of a video file, from its beginning."""
        return self.frame.timestamp

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Outputs, dequantised to scores or pixels."""
        return numbers(self.outputs, self.quantization)

    @cached_property
    def picture(self) -> np.ndarray:
        """Picture of the source, uint8 RGB [height, width, 3]; `InputError` without one."""
        pixels, array = self.frame.read_picture()
        return pixels.rgb(array)

    @property
    def detections(self) -> Detections:
        """Boxes of the picture; `InputError` if the model gives none."""
        if isinstance(self.result, Detections):
            return self.result
        if self.result is not None:
            raise InputError(f"the model is no detector; frame.result is its {type(self.result).__name__}")
        choices = " or ".join(map(repr, self.decoders)) or "the name of one"
        raise InputError(f"the model has no decoder; give card=ModelCard(decoder=...), with {choices}")
