"""Sound as frames of samples: files, and microphones of ALSA."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.errors import InputError, SourceLost
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.decoding import open_container, reason
from pipeline.io.uri import Uri
from pipeline.picture.pixels import library

ALSA = "alsa:"
"""Prefix of a location that is a microphone."""

DTYPES = {"float32": "fltp", "int16": "s16p"}
"""FFmpeg's formats of samples in planes: from -1 to 1, or whole numbers."""

MOST_SAMPLES = 1 << 24
"""Upper bound on the samples of a window."""


class Audio(FrameSource):
    """Windows of one channel's samples, each `hop` samples behind the one before.

    The location is a file, or ``alsa:DEVICE``. Samples of other rates are converted to `rate` per second. They are
    ``"float32"``, from -1 to 1, or ``"int16"``. A frame has `shape` in place of ``[window]``. Raises `InputError` if it
    is not there, or has no sound.
    """

    owns_memory = True

    def __init__(  # noqa: PLR0913 - all but the first by keyword
        self,
        location: str,
        *,
        rate: int = 16_000,
        window: int = 512,
        hop: int = 0,
        dtype: str = "float32",
        shape: tuple[int, ...] | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"dtype is {dtype!r}; it must be {' or '.join(map(repr, DTYPES))}")
        hop = hop or window
        for name, value in (("rate", rate), ("window", window), ("hop", hop)):
            if not 1 <= value <= MOST_SAMPLES:
                raise InputError(f"{name} is {value}; it must be a number from 1 to {MOST_SAMPLES}")
        self.live = location.startswith(ALSA)
        self._name, self._rate, self._window, self._hop = location, rate, window, hop
        self._dtype, self._shape = dtype, shape or (window,)
        device, options = location.removeprefix(ALSA), {"format": "alsa"} if self.live else {}
        self._container = open_container(device, location, media="audio", **options)

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the windows; the last one of a file is filled up with silence."""
        begin_s, buffer, count = time.time() if self.live else 0.0, np.empty(0, self._dtype), 0
        for block in self._blocks():
            buffer = np.concatenate([buffer, block])
            while len(buffer) >= self._window:
                yield self._frame(buffer[: self._window], count, begin_s)
                buffer, count = buffer[self._hop :], count + 1
        # Samples of the overlap were part of the last window.
        if len(buffer) > (self._window - self._hop if count else 0):
            yield self._frame(np.pad(buffer, (0, self._window - len(buffer))), count, begin_s)

    def close(self) -> None:
        """Close the file or device."""
        self._container.close()

    def _frame(self, samples: np.ndarray, count: int, begin_s: float) -> SourceFrame:
        # Stamped by the samples, since blocks come in bursts.
        stamp = round((begin_s + count * self._hop / self._rate) * SECOND)
        return SourceFrame(f"{count:06d}", samples.reshape(self._shape), stamp)

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield the samples of one channel, as they are decoded."""
        av = library()
        resampler = av.AudioResampler(format=DTYPES[self._dtype], rate=self._rate)
        try:
            for frame in self._container.decode(audio=0):
                yield from _samples(resampler.resample(frame))
            yield from _samples(resampler.resample(None))
        except (av.FFmpegError, OSError) as error:
            kind = SourceLost if self.live else InputError
            raise kind(f"the sound of {self._name!r} is damaged or lost: {reason(error)}") from None
        if self.live:
            raise SourceLost(f"{self._name!r} has ended")


def _samples(frames: Any) -> Iterator[np.ndarray]:
    for frame in frames:
        planes = frame.to_ndarray()
        # The mean of the channels; FFmpeg's own mix to one is louder than either.
        yield planes[0] if len(planes) == 1 else planes.mean(0).astype(planes.dtype)


OPTIONS = ("rate", "window", "hop", "dtype")


def _open(uri: Uri, options: SourceOptions) -> Audio:
    texts = dict(uri.options)
    dtype = texts.pop("dtype", "float32")
    try:
        numbers = {name: int(text) for name, text in texts.items()}
    except ValueError:
        raise InputError(f"{uri.text!r}: rate, window and hop must be whole numbers of samples") from None
    shape = None
    if len(options.specs) == 1:
        # The model says how many samples it takes, and in which shape.
        spec = options.specs[0]
        size = int(np.prod(spec.shape))
        dtype = uri.options.get("dtype", spec.dtype if spec.dtype in DTYPES else dtype)
        shape = spec.shape if numbers.setdefault("window", size) == size else None
    return Audio(uri.location, **numbers, dtype=dtype, shape=shape)


KINDS = (SourceKind(("audio",), _open, "audio:FILE and audio:alsa:DEVICE", takes_fps=True, options=OPTIONS),)
