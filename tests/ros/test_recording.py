"""A recorded bag through the node, at the pace of its recording and at ten times that."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.ros.configuration import Quality
from tests.ros.transports.test_dds import configuration
from tests.support.ros import onnx_bundle
from tests.support.ros.samples import store

pytest.importorskip("cyclonedds")
pytest.importorskip("rosbags")

from tests.support.ros.playing import IMAGE, Player, record

HEIGHT, WIDTH, COUNT = 480, 640, 45
PATIENCE_S = 60
RELIABLE, SENSOR = Quality(depth=2 * COUNT), Quality(reliable=False, depth=5)

pictures = [np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for number in range(COUNT)]


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The recording and its stamps."""
    path = tmp_path_factory.mktemp("recording") / "bag"
    return path, record(path, pictures)


@pytest.mark.parametrize(("speed", "quality"), [(1, RELIABLE), (10, RELIABLE), (1, SENSOR), (10, SENSOR)])
def test_answers_have_the_recorded_stamps_in_order_and_the_books_balance(  # noqa: PLR0917 - fixtures
    bag: tuple[Path, list[int]], speed: int, quality: Quality, large: Path, domain: int, tmp_path: Path,
    node: Callable[..., Any],
) -> None:  # fmt: skip
    path, stamps = bag
    qos = {"reliable": quality.reliable, "depth": quality.depth}
    subscribe = {"topic": "/camera", "qos": qos}
    running = node("--config", configuration(tmp_path, large, domain, subscribe=subscribe), "--json")
    player = Player(domain, quality, "inverted")
    player.play(path, speed)
    if quality.reliable:
        player.wait(COUNT)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=PATIENCE_S)
    player.take()
    assert running.returncode == 0, err
    # A machine that is busy otherwise may not keep up with ten times the pace, and says so.
    behind = "soc-pipeline: /camera is dropped in part, since the node is more than 5 messages behind"
    assert not err or (not quality.reliable and all(line.startswith(behind) for line in err.splitlines())), err
    answers = [check_answer(each, stamps) for each in player.payloads]
    assert answers == sorted(set(answers))
    counts, statistics = (json.loads(out)[name] for name in ("counts", "statistics"))
    # Given up by the node, or by the pipeline.
    dropped = counts["dropped"] + sum(statistics["dropped"].values())
    assert counts["received"] == counts["published"] + dropped
    assert (counts["refused"], counts["unpublished"], statistics["failed"]) == (0, 0, 0)
    assert counts["published"] == len(answers)
    # What was chosen: a reliable subscription loses nothing, sensor data gives way to what is newer.
    assert answers == list(range(COUNT)) if quality.reliable else set(statistics["dropped"]) <= {"replaced"}


def check_answer(payload: bytes, stamps: list[int]) -> int:
    """Return which message an answer is to, after comparing its picture, as rosbags reads it."""
    message = store().deserialize_cdr(payload, IMAGE)
    number = stamps.index(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
    assert (message.header.frame_id, message.encoding) == ("camera", "rgb8")
    np.testing.assert_array_equal(message.data.reshape(HEIGHT, WIDTH, 3), onnx_bundle.inverted(pictures[number]))
    return number
