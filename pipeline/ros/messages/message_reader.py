"""Reading: messages as pictures or arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.source_frame import SECOND
from pipeline.picture.pixels import Pixels
from pipeline.ros.bag_source import COMPRESSED, IMAGE
from pipeline.ros.bridge import Header
from pipeline.ros.messages import cdr, images, scans, tensors
from pipeline.ros.messages.types import create_message

TENSOR, HEADER = "soc_pipeline_msgs/msg/Tensor", "std_msgs/msg/Header"
READABLE = (IMAGE, COMPRESSED, TENSOR, *scans.READERS, *tensors.DTYPES)


class MessageReader:
    """Reads messages of one type.

    Raises `InputError` if messages of that type have no picture and no array.
    """

    def __init__(self, kind: str) -> None:
        if kind not in READABLE:
            raise InputError(f"messages of type {kind} have no input for a model; subscribe to {', '.join(READABLE)}")
        self._kind, self._decompressor = kind, images.Decompressor()

    def read(self, payload: bytes) -> tuple[Header, Pixels | None, np.ndarray]:
        """Return a message's header, picture format, and array, viewing `payload` if possible.

        Raises `InputError` if it is damaged, or its contents contradict each other.
        """
        message = cdr.decode(payload, self._kind)
        # Arrays of std_msgs have no header, and so neither a stamp nor a frame.
        if self._kind in tensors.DTYPES:
            return Header(), None, tensors.array(message, self._kind)
        if self._kind == TENSOR:
            return read_header(message), None, _array(message)
        if self._kind in scans.READERS:
            return read_header(message), None, scans.READERS[self._kind](message)
        pixels, array = (
            images.read_picture(message) if self._kind == IMAGE else self._decompressor.read_picture(message)
        )
        return read_header(message), pixels, array


def read_header(message: Any) -> Header:
    """Return a message's header as the node keeps it."""
    stamp = message.header.stamp
    return Header(stamp.sec * SECOND + stamp.nanosec, message.header.frame_id)


def message_header(header: Header) -> Any:
    """Return a header as messages have it."""
    seconds, nanoseconds = divmod(header.stamp, SECOND)
    return create_message(HEADER, create_message("builtin_interfaces/msg/Time", seconds, nanoseconds), header.frame_id)


def _array(message: Any) -> np.ndarray:
    try:
        return message.data.view(np.dtype(message.dtype)).reshape([int(extent) for extent in message.shape])  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a tensor of {message.dtype!r} {message.shape.tolist()} has {message.data.size} bytes: {error}"
        ) from None
