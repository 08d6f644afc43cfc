"""GStreamer: the system's library, its pipelines, and their errors by name."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import re
import sys
import time
import warnings
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, MissingExtra
from pipeline.system.closable import Closable
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed

SYSTEM_FOLDER = "/usr/lib/python3/dist-packages"
"""Folder of Debian's Python packages. An environment of its own does not see them."""

NAMESPACES = ("Gst", "GstApp", "GstVideo")
DEBIAN_PACKAGES = "python3-gi gir1.2-gst-plugins-base-1.0 gstreamer1.0-plugins-base gstreamer1.0-plugins-good"

OPENING_S = 15.0
"""Seconds until a pipeline has to be ready. Cameras of a Jetson need three, RTSP waits for a key frame."""

STEP_S = 0.1
"""Seconds of one wait: errors and Ctrl-C are seen between two."""

ORIGINS = {
    "av(dec|enc)_": "apt-get install gstreamer1.0-libav",
    "h26|rtmp|srt|kms|va|v4l2sl": "apt-get install gstreamer1.0-plugins-bad",
    "imx|vpu": "it comes with NXP's plugin (imx-gst1.0-plugin)",
    "jpeg|mp4mux|qt|rtp|rtsp|soup|udp|v4l2": "apt-get install gstreamer1.0-plugins-good",
    "libcamera": "apt-get install gstreamer1.0-libcamera",
    "mpp": "it comes with Rockchip's plugin (gstreamer1.0-rockchip1)",
    "nv(argus|jpeg|v4l2|vid)": "it comes with NVIDIA's JetPack (nvidia-l4t-gstreamer)",
    "x264": "apt-get install gstreamer1.0-plugins-ugly",
    "": "'apt-cache search gstreamer1.0' lists packages of elements, 'gst-inspect-1.0' the installed ones",
}
"""Origins of elements by the beginnings of their names; the first counts."""


BUSY = "another program has it: end that one ('fuser -v /dev/video*' shows it)"
"""Remedy for a camera in use."""


@cache
def library() -> Any:
    """Return PyGObject's repository with GStreamer in it, initialised.

    Raises `MissingExtra` if this Python has no PyGObject, or PyGObject no GStreamer.
    """
    # GStreamer brings libunwind, whose functions of the same names would unwind the exceptions of all C++ loaded later,
    # and end the process at TVM's first one.  The first library with a name serves everybody.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)
    try:
        with warnings.catch_warnings():
            # The importer of older PyGObjects lacks a method that newer Pythons look for.
            warnings.simplefilter("ignore", ImportWarning)
            gi = _import_gi()
            for name in NAMESPACES:
                gi.require_version(name, "1.0")
                importlib.import_module(f"gi.repository.{name}")
    except (ImportError, ValueError) as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise MissingExtra(
            f"gst: needs GStreamer and PyGObject for Python {version} ({error}); apt-get install {DEBIAN_PACKAGES}, "
            f"which serves the system's own Python; for another one, {install_command('gstreamer')}"
        ) from None
    repository = importlib.import_module("gi.repository")
    repository.Gst.init_check(None)
    return repository


def _import_gi() -> Any:
    """Import PyGObject, also from the system's folder if it is for this Python."""
    spec = None if is_installed("gi") else PathFinder.find_spec("gi", [SYSTEM_FOLDER])
    if spec is not None and spec.origin and spec.loader:
        folder = Path(spec.origin).parent
        # Its extension is compiled for one version.  Only this package comes from there, and nothing beside it.
        if any((folder / f"_gi{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
            sys.modules["gi"] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    return importlib.import_module("gi")


class LaunchedPipeline(Closable):
    """A pipeline of GStreamer, described as for ``gst-launch-1.0``, with one end in this process.

    The kind of that `end` is ``"appsink"`` or ``"appsrc"``; afterwards it is the element. `error` is the first one on
    the bus, and `ended` becomes True after the end of the stream. Raises `InputError` if the description is none, or
    names an element that is not installed.
    """

    def __init__(self, text: str, end: str) -> None:
        self._gst = library().Gst
        context = self._gst.ParseContext.new()
        try:
            self._pipeline = self._gst.parse_launch_full(text, context, self._gst.ParseFlags.FATAL_ERRORS)
        except library().GLib.Error as error:
            # Its list has elements with a wrong property as well.
            is_missing = error.message.startswith("no element")
            problem = missing_element(context.get_missing_elements()[0]) if is_missing else error.message
            raise InputError(f"gst: {problem}") from None
        if not isinstance(self._pipeline, self._gst.Bin):
            raise InputError(f"gst: {text!r} is a single element; give what comes before or behind it")
        _, self.end = self._pipeline.iterate_all_by_element_factory_name(end).next()
        self._bus = self._pipeline.get_bus()
        self.error, self._missing_plugin, self.ended = "", "", False

    def pause(self, *, wait: bool) -> bool:
        """Open its devices and files; return True if it is live.

        Raises `InputError` if that fails, or takes too long.

        `wait` is True for waiting until it has its first picture, unless it is live.
        """
        answers, deadline = self._gst.StateChangeReturn, time.monotonic() + OPENING_S
        answer = self._pipeline.set_state(self._gst.State.PAUSED)
        while wait and answer == answers.ASYNC:
            self.check()
            if time.monotonic() > deadline:
                raise InputError(f"gst: no picture within {OPENING_S:g} s")
            answer, *_ = self._pipeline.get_state(round(STEP_S * self._gst.SECOND))
        if answer == answers.FAILURE:
            # Its reason may come later, from another thread.
            self.read_bus(wait_s=1.0)
            self.check()
            raise InputError("gst: the pipeline cannot be started")
        # Only what makes its pictures itself has one before it plays.
        return bool(answer == answers.NO_PREROLL)

    def play(self) -> None:
        """Let it run."""
        self._pipeline.set_state(self._gst.State.PLAYING)

    def age(self, running_time: int) -> float:
        """Seconds since a running time in nanoseconds."""
        moment: int = self._pipeline.get_base_time() + running_time
        return float(self._pipeline.get_clock().get_time() - moment) / 1e9

    def check(self) -> None:
        """Raise the first error on its bus as `InputError`."""
        self.read_bus()
        if self.error:
            raise InputError(self.error)

    def read_bus(self, wait_s: float = 0.0) -> None:
        """Take all messages off its bus, where they would pile up."""
        kinds, nanoseconds = self._gst.MessageType, round(wait_s * self._gst.SECOND)
        wanted = kinds.ERROR | kinds.ELEMENT | kinds.EOS
        while not self.error and (message := self._bus.timed_pop_filtered(nanoseconds, wanted)) is not None:
            if message.type == kinds.EOS:
                self.ended = True
            elif message.type == kinds.ELEMENT:
                structure = message.get_structure()
                if structure is not None and structure.get_name() == "missing-plugin":
                    self._missing_plugin = structure.get_string("name")
            else:
                # Later ones follow from the first.
                error, details = message.parse_error()
                self.error = explain(message.src.get_name(), error.message, details or "", self._missing_plugin)

    def close(self) -> None:
        """Stop it, and let devices go."""
        self._pipeline.set_state(self._gst.State.NULL)


def missing_element(name: str) -> str:
    """Return the message about an element that is not installed, with its origin."""
    origin = next(origin for start, origin in ORIGINS.items() if re.match(start, name))
    return f"there is no element {name!r}; {origin}"


def explain(element: str, message: str, details: str, missing_plugin: str = "") -> str:
    """Return the message about an error of the bus, of which later lines of the details tell the cause."""
    if missing_plugin and "plug-in" in message:
        remedy = "apt-get install gstreamer1.0-libav gstreamer1.0-plugins-bad"
        return f"gst: {element}: there is no {missing_plugin}; {remedy}"
    cause = ", ".join(details.splitlines()[1:])
    text = f"gst: {element}: {message.rstrip('.')}{f' ({cause})' if cause else ''}"
    if "busy" in text.lower() or "acquire" in text.lower():
        return f"{text}; {BUSY}"
    if "not-negotiated" in text:
        return f"{text}; formats of two elements do not fit: put videoconvert between them, or nvvidconv on a Jetson"
    return text
