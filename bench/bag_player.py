"""Player, receiver and echo beside the node: a recorded bag over DDS, and the answers."""

from __future__ import annotations

import multiprocessing
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr
from pipeline.ros.messages.types import create_message
from pipeline.ros.transports.dds import Dds

HEIGHT, WIDTH, FPS = 480, 640, 30
IMAGE = "sensor_msgs/msg/Image"
DOMAIN = 20 + os.getpid() % 200
"""DDS domain of this process, so that two runs on a machine do not meet; spawned programs get it in `Play`."""
PATIENCE_S = 60

Times = list[tuple[int, float]]
"""Stamps, and the moments when messages with them were sent, or received."""


@dataclass(frozen=True)
class Play:
    """Bag, its speed, and the answers that come.

    Attributes
    ----------
    bag : Path
    quality : Quality
        Of images and answers.
    answers : str
        Their type, which has a header.
    speed : int
        How many times faster than recorded.
    domain : int
    """

    bag: Path
    quality: Quality
    answers: str = IMAGE
    speed: int = 1
    domain: int = DOMAIN


def record(path: Path, count: int) -> list[int]:
    """Record images as a camera would have them; return their stamps."""
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    stamps = [1_700_000_000 * 10**9 + number * 10**9 // FPS for number in range(count)]
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        connection = bag.add_connection("/camera", IMAGE, typestore=get_typestore(Stores.ROS2_HUMBLE))
        for stamp in stamps:
            bag.write(connection, stamp, memoryview(cdr.encode(image(pixels, stamp), IMAGE)))
    return stamps


def image(pixels: np.ndarray, stamp: int) -> Any:
    """Return a picture's message."""
    moment = create_message("builtin_interfaces/msg/Time", *divmod(stamp, 10**9))
    header = create_message("std_msgs/msg/Header", moment, "camera")
    return create_message(IMAGE, header, HEIGHT, WIDTH, "rgb8", 0, 3 * WIDTH, pixels.reshape(-1))


def exchange(play: Play) -> tuple[Times, Times]:
    """Play the bag; return what was sent and what came back."""
    # Spawned: the bundles were built in this process, and a fork would copy locks without TVM's threads.
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Event()
    (play_reader, play_writer), (answer_reader, answer_writer) = context.Pipe(), context.Pipe()
    receiver = context.Process(target=_receive, args=(play, ready, stop, answer_writer))
    player = context.Process(target=_play, args=(play, ready, play_writer))
    receiver.start()
    player.start()
    send_times = play_reader.recv()
    time.sleep(1.0)  # for the last answers
    stop.set()
    answer_times = answer_reader.recv()
    player.join()
    receiver.join()
    return send_times, answer_times


@contextmanager
def echo(play: Play) -> Iterator[None]:
    """Let a program send on what it receives, and do nothing else."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    program = context.Process(target=_send_on, args=(play, ready, stop))
    program.start()
    ready.wait(PATIENCE_S)
    yield
    stop.set()
    program.join()


def round_trips(send_times: Times, answer_times: Times) -> list[float]:
    """Return the seconds from sending to receiving, but for the images of the first second."""
    moments_sent = dict(send_times)
    # The first ones find cold caches, and the pipeline not yet open.
    steady = [moment - moments_sent[stamp] for stamp, moment in answer_times if stamp - send_times[0][0] >= 10**9]
    return steady or [float("nan")]


def _play(play: Play, ready: Event, result: Connection) -> None:
    send_times: Times = []
    with AnyReader([play.bag]) as reader, Dds(play.domain, localhost=True) as transport:
        send = transport.publisher("/camera", IMAGE, play.quality)
        ready.wait(PATIENCE_S)
        time.sleep(1.0)  # until all know each other
        begin = time.perf_counter()
        for _, stamp, payload in reader.messages():
            due = begin + (stamp - reader.start_time) / play.speed / 1e9
            time.sleep(max(0.0, due - time.perf_counter()))
            send_times.append((stamp, time.perf_counter()))
            send(payload, stamp)
    result.send(send_times)


def _receive(play: Play, ready: Event, stop: Event, result: Connection) -> None:
    messages: list[tuple[bytes, float]] = []

    def take(payload: bytes) -> None:
        # perf_counter is CLOCK_MONOTONIC, which all processes of a machine share.  The stamp is read from the bytes of
        # the header later: decoding a message here would hold up the next one.
        messages.append((payload[:12], time.perf_counter()))

    with Dds(play.domain, localhost=True) as transport:
        transport.subscribe("/answers", play.answers, play.quality, take)
        ready.set()
        stop.wait()
    result.send([(_stamp(beginning), moment) for beginning, moment in messages])


def _send_on(play: Play, ready: Event, stop: Event) -> None:
    with Dds(play.domain, localhost=True) as transport:
        send = transport.publisher("/answers", IMAGE, play.quality)
        transport.subscribe("/camera", IMAGE, play.quality, lambda payload: send(payload, 0))
        ready.set()
        stop.wait()


def _stamp(beginning: bytes) -> int:
    seconds, nanoseconds = struct.unpack_from("<iI", beginning, 4)
    return int(seconds) * 10**9 + int(nanoseconds)
