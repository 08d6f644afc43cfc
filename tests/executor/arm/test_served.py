"""A model in two stages: the first one on this machine, the second one on a board that runs ``soc-pipeline serve``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import DeviceLost, StageError
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.executor.arm.conftest import LIMIT, SLOW, ArmPython, target
from tests.remote.conftest import Child

pytestmark = list(SLOW)

FRAMES = 30
PATIENT = "?timeout=60&patience=300"
"""An emulated server takes its time to start, and shares this machine with the tests."""


@pytest.fixture
def serve(arm: ArmPython) -> Iterator[Callable[..., Child]]:
    """Start ``soc-pipeline serve`` on the board, with options; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(processor: str, *options: object) -> Child:
            child = Child(arm.root, *options, python=arm.command, environment=arm.environment(processor))
            stack.callback(child.kill)
            return child

        yield start


@pytest.fixture(scope="module")
def graph(digits_onnx: Path) -> Graph:
    return pipeline.read(digits_onnx)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    from pipeline.demo import digits

    return digits.held_out()[0][:FRAMES]


@pytest.fixture(scope="module")
def reference(graph: Graph, images: np.ndarray) -> np.ndarray:
    """Return the answers of the whole model on this machine."""
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        return np.stack(list(running.map(images)))


def close(answers: Any, reference: np.ndarray) -> None:
    np.testing.assert_allclose(answers, reference, rtol=0, atol=1e-5 * np.abs(reference).max())


def build_for(graph: Graph, server: Child, processor: str | None) -> Bundle:
    """Build for a processor, or for what the server says that it is."""
    address, description = server.address("cpu", PATIENT), None if processor is None else target(processor)
    board = Board("two machines", (Device("here"), Device("there", "remote", address=address, target=description)))
    cut = graph.group_ends[len(graph.group_ends) // 2]
    plan = pipeline.plan(graph, board, cuts=[cut], devices=["here", "there"])
    return pipeline.build(graph, plan, check=False)


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
def test_two_stages_answer_as_the_whole_model(
    graph: Graph, images: np.ndarray, reference: np.ndarray, serve: Any, processor: str
) -> None:
    server = serve(processor, "--accept-uploads")
    with pipeline.load(build_for(graph, server, processor)) as running:
        close(np.stack(list(running.map(images))), reference)
        assert running.statistics().delivered == len(images)


def test_the_board_is_asked_what_it_is(
    graph: Graph, images: np.ndarray, reference: np.ndarray, serve: Any, tmp_path: Path
) -> None:
    server = serve("cortex-a53", "--accept-uploads", "--uploads", tmp_path)
    bundle = build_for(graph, server, None)
    assert [code.machine for code in bundle.codes if code is not None][1] == "aarch64"
    with pipeline.load(bundle) as running:
        close(running.submit(images[0]).result(LIMIT), reference[0])


def test_a_board_that_is_lost_in_a_stream_comes_back(
    graph: Graph, images: np.ndarray, reference: np.ndarray, serve: Any, tmp_path: Path
) -> None:
    """The server has the stage in its folder, and takes nothing from clients."""
    server = serve("cortex-a72", "--bundles", tmp_path)
    build_for(graph, server, "cortex-a72").save(tmp_path / "far.bundle")
    restart, third = threading.Thread(target=server.restart), len(images) // 3
    with pipeline.load(tmp_path / "far.bundle") as running:
        futures: list[Future[Any]] = [running.submit(image) for image in images[:third]]
        futures[third // 2].result(LIMIT)
        restart.start()
        # Most of them wait for room, as the pipeline takes no more while it waits for the server.
        futures += [running.submit(image) for image in images[third:]]
        restart.join()
        assert not wait(futures, LIMIT).not_done
        statistics = running.statistics()
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        assert isinstance(error, StageError)
        assert isinstance(error.__cause__, DeviceLost)
    assert (statistics.submitted, statistics.failed) == (len(images), len(errors))
    assert statistics.delivered == len(images) - len(errors)
    # Lost is at most what was there when it went: a frame for each of the stage's two sessions.
    assert len(errors) <= 2
    for future, answer in zip(futures, reference, strict=True):
        if future.exception() is None:
            close(future.result(), answer)
