"""ROS 2 bags as sources: SQLite and MCAP, read without ROS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, MissingExtra, near
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.uri import Uri
from pipeline.ros.messages import images, tensors
from pipeline.ros.messages.types import message_store
from pipeline.system.optional import require

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
# Types whose messages are one input of a model.
READABLE = (IMAGE, COMPRESSED, *tensors.DTYPES)
SUFFIXES = (".db3", ".mcap")


def is_bag(path: Path) -> bool:
    """Recognise a bag: a folder with ``metadata.yaml``, or its file."""
    return (path / "metadata.yaml").is_file() or path.suffix in SUFFIXES


class Bag(FrameSource):
    """Images or arrays of one topic, timed by header or recording.

    The path is the bag's folder, or its one file; the topic by default the only one with images or arrays. Raises
    `InputError` if it is missing, damaged, or has no such topic.
    """

    owns_memory = True

    def __init__(self, path: str | Path, specs: Sequence[TensorSpec] = (), topic: str | None = None) -> None:
        self._path, self._specs, self._count = Path(path), specs, 0
        self._decompressor = images.Decompressor()
        if not self._path.exists():
            raise InputError(f"no bag at {str(path)!r}")
        self._reader = require("rosbags.highlevel", "bag", "bags of ROS 2")
        with contextlib.ExitStack() as stack, self._read():
            self._bag = self._reader.AnyReader([self._path], default_typestore=message_store())
            stack.enter_context(self._bag)
            # A topic may have several connections, one for each publisher that was recorded.
            self._connections = [
                connection for connection in self._bag.connections if connection.topic == self._topic(topic)
            ]
            frames = self._frames()
            # The first one says what all are.
            first = next(frames, None)
            if first is None:
                raise InputError(f"{str(path)!r} has no message in {self._connections[0].topic}")
            self.pixels, self._frames_left = first.pixels, chain([first], frames)
            # From here on `close` ends what was opened; until here, an error has.
            self._stack = stack.pop_all()

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the messages as frames."""
        return self._frames_left

    def close(self) -> None:
        """Close the bag."""
        self._stack.close()

    def _topic(self, topic: str | None) -> str:
        topics = {connection.topic for connection in self._bag.connections if connection.msgtype in READABLE}
        if topic in topics or (topic is None and len(topics) == 1):
            return topic or topics.pop()
        if topic is None:
            problem = f"several; write 'bag:{self._path}?topic=TOPIC'" if topics else "none"
        else:
            problem = f"no {topic!r}{near(topic, topics)}"
        list_of_topics = f": {', '.join(sorted(topics))}" if topics else ""
        raise InputError(f"of topics with images or arrays, {str(self._path)!r} has {problem}{list_of_topics}")

    def _frames(self) -> Iterator[SourceFrame]:
        with self._read():
            for connection, record_time, data in self._bag.messages(connections=self._connections):
                yield self._frame(self._bag.deserialize(data, connection.msgtype), connection.msgtype, record_time)
                self._count += 1

    def _frame(self, message: Any, kind: str, record_time: int) -> SourceFrame:
        name, stamp = f"{self._path.stem}-{self._count:06d}", _stamp(message, record_time)
        if kind in tensors.DTYPES:
            return SourceFrame(name, self._inputs(tensors.array(message, kind)), stamp)
        pixels, array = images.read_picture(message) if kind == IMAGE else self._decompressor.read_picture(message)
        # The first stage was made for one size and encoding, and the pipeline is running.
        if self.pixels not in (None, pixels):
            raise InputError(f"{name}: the images change from {self.pixels} to {pixels}")
        return SourceFrame(name, array, stamp, pixels=pixels, frame_id=message.header.frame_id)

    def _inputs(self, array: np.ndarray) -> np.ndarray:
        if len(self._specs) > 1:
            names = ", ".join(spec.name for spec in self._specs)
            raise InputError(f"a topic has one array per message, but the model has the inputs {names}")
        return array

    @contextlib.contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        # Errors of our own say more than that the bag is damaged; `GeneratorExit` ends the iteration.
        except (InputError, MissingExtra, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001 - damaged bags make their reader stumble in many ways
            raise InputError(
                f"{str(self._path)!r} is not a readable bag, from its message {self._count} on: {error}"
            ) from None


def _stamp(message: Any, record_time: int) -> int:
    header = getattr(message, "header", None)
    # Drivers without a clock leave it zero.
    if header is None or not (header.stamp.sec or header.stamp.nanosec):
        return record_time
    return int(header.stamp.sec) * SECOND + int(header.stamp.nanosec)


def _open(uri: Uri, options: SourceOptions) -> Bag:
    return Bag(uri.path, options.specs, uri.options.get("topic"))


KINDS = (SourceKind(("bag",), _open, "bag:PATH", is_bag, is_file=True, options=("topic",)),)
