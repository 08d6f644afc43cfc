"""Peers that are not ours: Fast DDS publishes in C++, Cyclone DDS subscribes in C, the node works between them.

Both are built from the messages' IDL by the compilers of their own; Debian has them as libfastrtps-dev, fastddsgen and
cyclonedds-dev, cyclonedds-tools.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ros.transports.test_dds import configuration
from tests.support.ros import onnx_bundle
from tests.support.ros.expected import boxes, weighted_sum
from tests.support.system_tools import skip_without

pytestmark = pytest.mark.slow
pytest.importorskip("cyclonedds")

from pipeline.ros.transports.dds_domain import LOCALHOST  # noqa: E402 - it may be missing

FOLDER = Path(__file__).parent / "peers"
HEIGHT, WIDTH, COUNT, PATIENCE_S = 480, 640, 300, 100


def build(*line: object, cwd: Path) -> None:
    process_end = subprocess.run([*map(str, line)], cwd=cwd, capture_output=True, text=True, check=False)
    assert process_end.returncode == 0, process_end.stdout + process_end.stderr


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both programs."""
    for tool in ("gcc", "g++", "fastddsgen", "idlc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing; Debian: libfastrtps-dev fastddsgen cyclonedds-dev cyclonedds-tools")
    skip_without("g++", (11,))
    folder = tmp_path_factory.mktemp("peers")
    shutil.copy(FOLDER / "messages.idl", folder)
    build("fastddsgen", "-cs", "-replace", "-d", folder, "messages.idl", cwd=folder)
    sources = (FOLDER / "fast_publisher.cpp", "messages.cxx", "messagesPubSubTypes.cxx")
    build("g++", "-O1", "-o", "fast_publisher", *sources, "-I.", "-lfastrtps", "-lfastcdr", cwd=folder)
    (folder / "c").mkdir()
    build("idlc", "-x", "final", "-o", "c", "messages.idl", cwd=folder)
    source = FOLDER / "cyclone_subscriber.c"
    build("gcc", "-O1", "-o", "cyclone_subscriber", source, "c/messages.c", "-Ic", "-lddsc", cwd=folder)
    return folder


def sent_picture(number: int) -> np.ndarray:
    """Return the picture that the publisher makes."""
    positions = np.arange(HEIGHT * WIDTH * 3)
    return ((positions * 31 + number * 7 + (positions >> 8)) & 255).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)


def test_300_images_and_300_detection_messages_pass_between_fast_dds_and_cyclone_dds(  # noqa: PLR0917 - fixtures
    peers: Path, large: Path, domain: int, tmp_path: Path, node: Callable[..., Any], process: Callable[..., Any]
) -> None:
    # Debian's Cyclone DDS is 0.10.
    running = node("--config", configuration(tmp_path, large, domain, octets=True), "--json")
    arguments = (domain, "inverted", "detections", COUNT, PATIENCE_S)
    subscriber = process(peers / "cyclone_subscriber", *arguments, CYCLONEDDS_URI=LOCALHOST)
    publisher = process(peers / "fast_publisher", domain, "camera", COUNT, WIDTH, HEIGHT, 30)
    publisher_lines, _ = publisher.communicate(timeout=PATIENCE_S)
    subscriber_lines, err = subscriber.communicate(timeout=PATIENCE_S)
    assert (publisher.returncode, subscriber.returncode) == (0, 0), err
    lines = [line.split() for line in subscriber_lines.splitlines()]
    images, detections = ([line[1:] for line in lines if line[0] == kind] for kind in ("image", "detections"))
    pictures = [sent_picture(number) for number in range(COUNT)]
    stamps = [(str(1700000000 + number), str(number * 1001 + 1)) for number in range(COUNT)]
    assert [line.split()[:3] for line in publisher_lines.splitlines()] == [
        [*stamp, str(weighted_sum(array))] for stamp, array in zip(stamps, pictures, strict=True)
    ]
    size = [str(WIDTH), str(HEIGHT), str(3 * WIDTH * HEIGHT)]
    assert images == [
        [*stamp, "camera_front", "rgb8", *size, str(weighted_sum(onnx_bundle.inverted(array)))]
        for stamp, array in zip(stamps, pictures, strict=True)
    ]
    assert detections == [
        [*stamp, "camera_front", *map(text, boxes(array))] for stamp, array in zip(stamps, pictures, strict=True)
    ]
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0


def text(box: list[Any]) -> str:
    """Return a box as the subscriber prints it."""
    x, y, width, height, score, kind = box
    return f"{kind}:{score:g}:{x:g}:{y:g}:{width:g}:{height:g}"
