"""Encoders: FFmpeg's, chosen by name and by what the machine has, set for live streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import InputError
from pipeline.io.sources.decoding import reason
from pipeline.io.uri import parse_count
from pipeline.picture.pixels import Pixels, library

OPTIONS = ("encoder", "codec", "preset", "bitrate", "threads")
"""Options of a sink about how it encodes; ``codec`` is the earlier name of ``encoder``."""

SOFTWARE = ("libx264", "libopenh264", "mpeg4")
"""Encoders by preference, where none is named. Builds of FFmpeg differ: x264 is missing where its licence does not fit,
and mpeg4 is FFmpeg's own."""

HARDWARE = ("h264_nvenc", "h264_qsv", "h264_amf", "h264_rkmpp", "h264_v4l2m2m", "h264_vaapi")
"""Encoders of graphics cards and boards, by preference."""

ANY_HARDWARE = "hardware"
"""The first of `HARDWARE` that can be opened."""

# x264's own default takes 2 to 3 times as long for a file of 0.7 to 0.9 times the size.
_LIVE: Mapping[str, Mapping[str, str]] = {
    "libx264": {"preset": "superfast", "crf": "23"},
    "libx265": {"preset": "ultrafast", "crf": "28"},
    "libsvtav1": {"preset": "10", "crf": "35"},
    # Its rate control counts in frames of equal length, which pictures with times of their own are not.
    "mpeg4": {"qmin": "4"},
}
"""Options of encoders that keep a quality, unless the user gives some."""

_BITS_PER_PIXEL = 4
"""Bits per second of other lossy encoders, for each pixel of a picture: 8.3 Mbit/s at 1920x1080."""

_TRIAL = (640, 480)
"""Width and height of a trial's pictures, which no encoder refuses."""

_BITRATE = re.compile(r"(\d+(?:\.\d+)?)([kM]?)")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}


@dataclass(frozen=True)
class Encoding:
    """Settings of an encoder."""

    encoder: str = ""
    """FFmpeg's name, or ``"hardware"``; empty for the first of `SOFTWARE`."""
    preset: str = ""
    """The encoder's own name of a speed."""
    bitrate: int = 0
    """Bits per second; 0 for the encoder's quality."""
    threads: int = 0
    """Threads of the encoder; 0 for as many as suit the processor."""

    def configure(self, context: Any, name: str) -> None:
        """Set an encoder's context, which has its size already."""
        rules = {} if self.bitrate else dict(_LIVE.get(name, {}))
        if preset := self.preset or _LIVE.get(name, {}).get("preset"):
            rules["preset"] = preset
        if self.bitrate or name not in _LIVE:
            context.bit_rate = self.bitrate or _BITS_PER_PIXEL * context.width * context.height
        context.options, context.thread_count = rules, self.threads
        # PyAV asks for threads that share each picture. Those wait for one another, the longer the busier the cores:
        # with a picture per thread a stream through a detector got 1.2 times as fast on two cores.
        context.thread_type = "AUTO"


def parse_encoding(options: Mapping[str, str]) -> Encoding:
    """Return the settings of a sink's options, or raise `InputError`."""
    text = options.get("bitrate", "0")
    match = _BITRATE.fullmatch(text)
    if match is None:
        raise InputError(f"bitrate is {text!r}; write bits per second, such as 4M or 800k")
    bitrate = round(float(match[1]) * _UNITS[match[2]])
    encoder = options.get("encoder", options.get("codec", ""))
    return Encoding(encoder, options.get("preset", ""), bitrate, parse_count(options, "threads"))


def choose_encoder(encoding: Encoding, notice: Callable[[str], object]) -> str:
    """Return the name of the encoder, by trying to open it.

    Raises `InputError` if there is no such encoder, or it refuses its settings.

    `notice`: function to call with a line, if the machine lacks the hardware and the processor encodes instead.
    """
    software = next(name for name in SOFTWARE if name in library().codecs_available)
    wanted = encoding.encoder or software
    names = HARDWARE if wanted == ANY_HARDWARE else (wanted,)
    errors: dict[str, str] = {}
    opened = next((name for name in names if not errors.setdefault(name, _try_encoder(name, encoding))), None)
    if opened == "mpeg4" and encoding.bitrate:
        raise InputError("bitrate is not for the encoder 'mpeg4', which keeps a quality; give encoder=libx264")
    if opened is None and wanted not in (ANY_HARDWARE, *HARDWARE):
        raise InputError(errors[wanted])
    if opened is None:
        notice(f"{errors.get(wanted, 'no encoder in hardware can be opened')}; {software} encodes on the processor")
    return opened or software


def choose_format(name: str, pixels: Pixels) -> str:
    """Return the pixel format that an encoder takes with the least conversion."""
    encoder = library().Codec(name, "w")
    formats = [str(pixel_format.name) for pixel_format in encoder.video_formats or ()]
    if name in (*SOFTWARE, *HARDWARE):
        # What all players show; of cameras, most have it.
        preferences = [pixels.format if pixels.format in ("nv12", "yuvj420p") else "yuv420p", "yuv420p", "nv12"]
    else:
        # The same content in another arrangement of bytes, without a loss.  Those of photos take full range only.
        alike = {"rgb24": "bgr0", "bgr24": "bgr0", "rgba": "bgra", "yuyv422": "yuv422p", "nv12": "yuv420p"}
        preferences = [pixels.format, alike.get(pixels.format, ""), "yuv420p", *formats]
        if pixels.format == "yuv420p":
            preferences.insert(0, "yuvj420p")
    return next((preference for preference in preferences if preference in formats), "yuv420p")


def _try_encoder(name: str, encoding: Encoding) -> str:
    """Open an encoder for a moment; return the error, empty if there is none."""
    av = library()
    try:
        context = av.CodecContext.create(name, "w")
        # Others may take certain sizes only, and refuse their settings with the first picture.
        if name in (*SOFTWARE, *HARDWARE):
            context.width, context.height = _TRIAL
            context.pix_fmt, context.framerate = choose_format(name, Pixels("yuv420p", *_TRIAL)), 30
            encoding.configure(context, name)
            context.open()
    except (av.FFmpegError, ValueError) as error:
        settings = f" and the preset {encoding.preset!r}" if encoding.preset else ""
        cause = reason(error) if name in av.codecs_available else "this build of FFmpeg has none of that name"
        return f"cannot encode with the codec {name!r}{settings}: {cause}"
    return ""
