"""Servers in processes of their own, and plans that use them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.remote.server import Server

LIMIT = 60.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread or process does."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Child:
    """A server's process; `restart` starts it again at the same port."""

    def __init__(
        self,
        root: Path,
        *options: object,
        python: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._environment = root, environment
        self._line = [*python, "-m", "pipeline.cli", "serve", "--json", *map(str, options)]
        self.port = 0
        self.start()

    def start(self) -> None:
        line = [*self._line, "--port", str(self.port)]
        self.process = subprocess.Popen(
            line,
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = json.loads(self.process.stdout.readline())["port"]

    def send(self, title: signal.Signals) -> None:
        os.kill(self.process.pid, title)
        if title == signal.SIGSTOP:
            # One of its threads takes the signal, and until that one is given a core the others go on.
            os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def address(self, device: str = "null", options: str = "") -> str:
        return f"remote://127.0.0.1:{self.port}/{device}{options}"


@pytest.fixture
def serve(root: Path) -> Iterator[Callable[..., Child]]:
    """Start ``soc-pipeline serve`` with options; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(*options: object) -> Child:
            child = Child(root, *options)
            stack.callback(child.kill)
            return child

        yield start


@pytest.fixture
def server(serve: Callable[..., Child]) -> Child:
    return serve()


@contextlib.contextmanager
def in_thread(server: Server) -> Iterator[Server]:
    """Let a server of this process take clients in, in a thread of its own, and end it behind the block."""
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(LIMIT)
        assert not thread.is_alive()


def plan(address: str, *, kind: str = "remote", replicas: int = 1, seconds: float = 0.0, **options: Any) -> Plan:
    """Two stages: one here that computes nothing, one at the address."""
    x, y, z = (TensorSpec(name, (4,)) for name in "xyz")
    devices = (Device("here", "null"), Device("there", kind, address=address, memory="there"))
    stages = (
        StagePlan("near", "here", (x,), (y,)),
        StagePlan("far", "there", (y,), (z,), replicas=replicas, seconds=seconds),
    )
    return Plan("remote", "", Board("two machines", devices), (x,), (z,), stages, **options)


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)
