"""Bags of ROS 2 as sources: SQLite and MCAP, read without ROS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError, MissingExtra, near
from pipeline.extras import require
from pipeline.io import images, tensors
from pipeline.io.frame import SECOND, Frame
from pipeline.io.source import Source
from pipeline.plans import TensorSpec

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
READABLE = (IMAGE, COMPRESSED, *tensors.DTYPES)
SUFFIXES = (".db3", ".mcap")


def typestore() -> Any:
    """Return the messages of ROS 2, for bags that do not bring their own."""
    found = require("rosbags.typesys", "bag", "bags of ROS 2")
    return found.get_typestore(found.Stores.ROS2_HUMBLE)


def is_bag(path: Path) -> bool:
    """Whether `path` looks like a bag: a folder with ``metadata.yaml``, or one of its files."""
    return (path / "metadata.yaml").is_file() or path.suffix in SUFFIXES


class Bag(Source):
    """Images or arrays from one topic of a bag, each with the time in its header, or else that of its recording.

    Parameters
    ----------
    path : str or Path
        The bag's folder, or its one file.
    specs : sequence of TensorSpec
        The model's inputs.
    topic : str, optional
        By default the only one with images or arrays.

    Raises
    ------
    InputError
        If it is missing, damaged, or has no such topic.
    """

    fresh = True

    def __init__(self, path: str | Path, specs: Sequence[TensorSpec] = (), topic: str | None = None) -> None:
        self._path, self._specs, self._count = Path(path), specs, 0
        self._decompressor = images.Decompressor()
        if not self._path.exists():
            raise InputError(f"no bag at {str(path)!r}")
        self._reader = require("rosbags.highlevel", "bag", "bags of ROS 2")
        with contextlib.ExitStack() as stack, self._read():
            self._bag = self._reader.AnyReader([self._path], default_typestore=typestore())
            stack.enter_context(self._bag)
            self._connections = [each for each in self._bag.connections if each.topic == self._topic(topic)]
            frames = self._frames()
            # The first one says what all are.
            first = next(frames, None)
            if first is None:
                raise InputError(f"{str(path)!r} has no message in {self._connections[0].topic}")
            self.pixels, self._all = first.pixels, chain([first], frames)
            self._stack = stack.pop_all()

    def __iter__(self) -> Iterator[Frame]:
        """Yield the messages as frames."""
        return self._all

    def close(self) -> None:
        """Close the bag."""
        self._stack.close()

    def _topic(self, wanted: str | None) -> str:
        found = {each.topic for each in self._bag.connections if each.msgtype in READABLE}
        if wanted in found or (wanted is None and len(found) == 1):
            return wanted or found.pop()
        if wanted is None:
            what = f"several; write 'bag:{self._path}?topic=TOPIC'" if found else "none"
        else:
            what = f"no {wanted!r}{near(wanted, found)}"
        there = f": {', '.join(sorted(found))}" if found else ""
        raise InputError(f"of topics with images or arrays, {str(self._path)!r} has {what}{there}")

    def _frames(self) -> Iterator[Frame]:
        with self._read():
            for connection, received, data in self._bag.messages(connections=self._connections):
                yield self._frame(self._bag.deserialize(data, connection.msgtype), connection.msgtype, received)
                self._count += 1

    def _frame(self, message: Any, kind: str, received: int) -> Frame:
        name, stamp = f"{self._path.stem}-{self._count:06d}", _stamp(message, received)
        if kind in tensors.DTYPES:
            return Frame(name, self._inputs(tensors.array(message, kind)), stamp)
        pixels, array = images.raw(message) if kind == IMAGE else self._decompressor.raw(message)
        if self.pixels not in (None, pixels):
            raise InputError(f"{name}: the images change from {self.pixels} to {pixels}")
        return Frame(name, array, stamp, pixels=pixels, frame_id=message.header.frame_id)

    def _inputs(self, array: np.ndarray) -> np.ndarray:
        if len(self._specs) > 1:
            names = ", ".join(spec.name for spec in self._specs)
            raise InputError(f"a topic has one array per message, but the model has the inputs {names}")
        return array

    @contextlib.contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        except (InputError, MissingExtra, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001 - damaged bags make their reader stumble in many ways
            raise InputError(
                f"{str(self._path)!r} is not a readable bag, from its message {self._count} on: {error}"
            ) from None


def _stamp(message: Any, received: int) -> int:
    header = getattr(message, "header", None)
    if header is None or not (header.stamp.sec or header.stamp.nanosec):
        return received
    return int(header.stamp.sec) * SECOND + int(header.stamp.nanosec)
