"""A recorded bag played into a domain and its answers taken, with nothing of ours but the description of the types."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.ros.configuration import Quality
from pipeline.ros.transports.dds_domain import LOCALHOST
from pipeline.ros.transports.dds_types import describe_type, library
from tests.support.ros.samples import store

IMAGE = "sensor_msgs/msg/Image"
PATIENCE_S = 60.0
FPS = 30


def record(path: Path, pictures: list[np.ndarray]) -> list[int]:
    """Write a bag with the topic ``/camera``; return its stamps."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    types = store()
    stamps = [1_700_000_000 * 10**9 + number * 10**9 // FPS for number in range(len(pictures))]
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        connection = bag.add_connection("/camera", IMAGE, typestore=types)
        for stamp, array in zip(stamps, pictures, strict=True):
            moment = types.types["builtin_interfaces/msg/Time"](*divmod(stamp, 10**9))
            header = types.types["std_msgs/msg/Header"](moment, "camera")
            height, width = array.shape[:2]
            image = types.types[IMAGE](header, height, width, "rgb8", 0, array.nbytes // height, array.reshape(-1))
            bag.write(connection, stamp, types.serialize_cdr(image, IMAGE))
    return stamps


class Player:
    """Plays a bag and keeps the images that come back.

    Parameters
    ----------
    domain : int
    quality : Quality
        With which it plays; answers are taken reliably, whatever it is.
    answers : str
        Their topic.

    Attributes
    ----------
    payloads : list of bytes
        The answers so far.
    """

    def __init__(self, domain: int, quality: Quality, answers: str) -> None:
        from pipeline.ros.transports.dds import quality_policies

        self.payloads: list[bytes] = []
        self._domain = library("domain").Domain(domain, LOCALHOST)
        participant = library("domain").DomainParticipant(domain)
        topics = [
            library("topic").Topic(participant, f"rt/{name}", describe_type(IMAGE)) for name in ("camera", answers)
        ]
        self._writer = library("pub").DataWriter(participant, topics[0], qos=quality_policies(quality))
        self._reader: Any = library("sub").DataReader(participant, topics[1], qos=quality_policies(Quality(depth=1000)))

    def play(self, bag: Path, speed: float) -> None:
        """Send what was recorded when its time has come; the second message waits for the answer to the first."""
        from rosbags.highlevel import AnyReader

        self._until(lambda: self._writer.get_matched_subscriptions() and self._reader.get_matched_publications())
        begin = time.monotonic()
        with AnyReader([bag]) as reader:
            for number, (_, stamp, payload) in enumerate(reader.messages()):
                due = begin + (stamp - reader.start_time) / 1e9 / speed
                time.sleep(max(0.0, due - time.monotonic()))
                self._writer.write(describe_type(IMAGE)(payload))
                if not number:
                    self.wait(1)
                    begin = time.monotonic()
                self.take()

    def wait(self, count: int) -> None:
        """Wait for so many answers."""
        self._until(lambda: len(self.payloads) >= count)

    def take(self) -> None:
        """Take what has come."""
        invalid = library("internal").InvalidSample
        self.payloads += [each.payload for each in self._reader.take(100) if not isinstance(each, invalid)]

    def _until(self, condition: Any) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"{len(self.payloads)} answers came"
            self.take()
            time.sleep(0.005)
