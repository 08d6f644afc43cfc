"""ROS 2 bags as sinks: a topic per output, with frame times."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.uri import Uri
from pipeline.ros.bag_source import IMAGE
from pipeline.ros.bridge import Header
from pipeline.ros.messages import cdr, tensors
from pipeline.ros.messages.message_reader import message_header
from pipeline.ros.messages.types import create_message, message_store
from pipeline.system.files import replace_folder, scratch_folder
from pipeline.system.optional import require

# Of the URI -> of `rosbags.rosbag2.StoragePlugin`.
STORAGE = {"mcap": "MCAP", "sqlite3": "SQLITE3"}


class BagSink(Sink):
    """Writes a bag: byte pictures as `sensor_msgs/Image`, other outputs as `std_msgs`.

    The bag's folder must not be there yet; the storage is ``"mcap"`` or ``"sqlite3"``. Raises `InputError` if there is
    something already, the storage is unknown, or ROS has no message for an output.
    """

    reads_results = False

    def __init__(self, path: Path, outputs: Sequence[TensorSpec], storage: str = "mcap") -> None:
        if storage not in STORAGE:
            raise InputError(f"storage is {storage!r}; it must be {' or '.join(map(repr, STORAGE))}")
        # Never written over: a recording is often all that is left of a drive.
        if path.exists():
            raise InputError(f"{str(path)!r} exists; choose another name for the bag")
        # A bag without a message is removed after an error, as if nothing had been recorded.
        self._path, self._empty = path, True
        rosbag2 = require("rosbags.rosbag2", "bag", "bags of ROS 2")
        # What fails on the way to the last line takes thread and temporary folder along.
        with contextlib.ExitStack() as stack:
            # Beside the bag, and so on the same file system, on which renaming takes no copy.
            scratch = stack.enter_context(scratch_folder(path))
            (scratch / "new").mkdir()
            # The bag's files are called as its folder, so that the name is the one to come.
            self._temporary, self._backup = scratch / "new" / path.name, scratch / "old"
            plugin = getattr(rosbag2.StoragePlugin, STORAGE[storage])
            self._bag = rosbag2.Writer(self._temporary, version=9, storage_plugin=plugin)
            # What SQLite makes belongs to the thread that made it, and results come in another one.
            self._thread = stack.enter_context(ThreadPoolExecutor(1, "bag"))
            self._in_thread(self._bag.open)
            stack.callback(self._in_thread, self._bag.abort)
            self._topics = {spec.name: self._topic(spec, kind(spec)) for spec in outputs}
            self._stack = stack.pop_all()

    def add(self, result: StreamFrame) -> None:
        """Write one message for each output."""
        for name, array in result.outputs.items():
            connection = self._topics[name]
            message = _create(np.asarray(array), connection.msgtype, result.frame)
            # Encoded in the thread of the caller, so that the thread of the bag only writes.
            data = cdr.encode(message, connection.msgtype)
            self._in_thread(self._bag.write, connection, result.frame.stamp, data)
            self._empty = False

    def finish(self) -> None:
        """Complete the bag and give it its name."""
        with self._stack:
            try:
                self._in_thread(self._bag.close)
            finally:
                # Readers recover much of a bag without its end, as on a full disk.
                replace_folder(self._path, self._temporary, self._backup)

    def finish_early(self) -> None:
        """Complete the bag, or remove it without messages."""
        if not self._empty:
            self.finish()
            return
        with contextlib.suppress(OSError):
            self._stack.close()

    def _topic(self, spec: TensorSpec, kind: str) -> Any:
        # Names of topics have letters, digits and underscores, and do not begin with a digit.
        name = re.sub(r"\W", "_", spec.name, flags=re.ASCII)
        topic = f"/_{name}" if name[:1].isdecimal() else f"/{name}"
        return self._in_thread(self._bag.add_connection, topic, kind, typestore=message_store())

    def _in_thread(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self._thread.submit(function, *arguments, **options).result()


def kind(spec: TensorSpec) -> str:
    """Return the type of message for an output."""
    picture = len(spec.shape) == 2 or (len(spec.shape) == 3 and spec.shape[2] == 3)
    return IMAGE if spec.dtype == "uint8" and picture else tensors.kind(spec.dtype)


def _create(array: np.ndarray, kind: str, frame: SourceFrame) -> Any:
    if kind != IMAGE:
        return tensors.message(array)
    header = message_header(Header(frame.stamp, frame.frame_id))
    height, width = array.shape[:2]
    encoding = "mono8" if array.ndim == 2 else "rgb8"
    return create_message(IMAGE, header, height, width, encoding, 0, array.nbytes // height, array.reshape(-1))


def _open(uri: Uri, options: SinkOptions) -> BagSink:
    return BagSink(uri.path, options.outputs, **uri.options)


KINDS = (SinkKind("bag", _open, "bag:PATH", options=("storage",)),)
