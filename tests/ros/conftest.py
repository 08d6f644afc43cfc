"""Fixtures of the tests of the node for ROS 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ros import onnx_bundle

HEIGHT, WIDTH = 24, 32


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two stages for pictures of 32x24; read only."""
    pytest.importorskip("onnx")
    path = tmp_path_factory.mktemp("bundle") / "small.bundle"
    onnx_bundle.save(path, HEIGHT, WIDTH)
    return path


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for pictures of 640x480."""
    pytest.importorskip("onnx")
    path = tmp_path_factory.mktemp("bundle") / "large.bundle"
    onnx_bundle.save(path, 480, 640)
    return path


@pytest.fixture
def domain() -> int:
    """A DDS domain that no other test uses at the same time."""
    return 20 + os.getpid() % 200


@pytest.fixture
def process(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes that are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        line = [*map(str, arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**os.environ, "PYTHONPATH": str(root), **environment}
        child = subprocess.Popen(line, cwd=root, text=True, env=env, **pipes)
        processes.append(child)
        return child

    yield start
    for child in processes:
        child.kill()
        child.communicate()


@pytest.fixture
def node(process: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start ``soc-pipeline node`` and wait until it has subscribed."""

    def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        child = process(sys.executable, "-m", "pipeline.cli", "node", *arguments, **environment)
        assert child.stderr is not None
        assert "->" in (first := child.stderr.readline()), first + child.stderr.read()
        return child

    return start
