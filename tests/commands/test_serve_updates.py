"""``serve --run --watch`` under load: bad versions do no harm, the end comes soon, and a restart runs what ran."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from tests.support.updates import SECONDS, X, Y, bundle

LIMIT = 60.0
MOST_S = 5.0
"""Seconds from SIGTERM to the end."""

SERVER = """
import signal, sys
from contextlib import ExitStack
from pipeline.cli import main
from tests.support import updates
signal.signal(signal.SIGINT, signal.default_int_handler)
with ExitStack() as stack:
    for name in ("failing", "doubling", "crashing"):
        stack.enter_context(updates.registered(name, getattr(updates, name.capitalize() + "Runtime")))
    status = main(["serve", "--port", "0", "--json", *sys.argv[1:]])
sys.exit(status)
"""


class Server:
    """The command in a process of its own, with kinds of devices that misbehave."""

    def __init__(self, root: Path, base: Path, folder: Path, *options: object) -> None:
        words = ("--run", base, "--watch", folder, "--most-slower", 30, *options)
        self._log = (folder.parent / "log").open("a+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *map(str, words)],
            cwd=root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        self.port = json.loads(self.process.stdout.readline())["port"]

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def terminate(self) -> float:
        """Send SIGTERM, and return the seconds until the end."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)
        return time.monotonic() - begin

    def __enter__(self) -> Server:  # noqa: PYI034 - Self is newer than the oldest Python
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()


@contextmanager
def load(port: int, clients: int = 3) -> Iterator[list[Any]]:
    """Send frames all the time, and give what became of them: a duration, or an error."""
    device = Device("r", "remote", memory="far", address=f"remote://127.0.0.1:{port}/bundle?timeout=30")
    stage = StagePlan("s", "r", (X,), (Y,), seconds=SECONDS, replicas=clients)
    ending, outcomes = threading.Event(), []
    with Pipeline(Plan("m", "", Board("b", (device,)), (X,), (Y,), (stage,))) as running:

        def feed() -> None:
            for number in itertools.count(1):
                if ending.is_set():
                    return
                begin = time.monotonic()
                future = running.submit(np.full(4, number, np.float32))
                error = future.exception(LIMIT)
                assert error is not None or future.result()[0] == number
                outcomes.append(error or time.monotonic() - begin)
                time.sleep(SECONDS)

        threads = [threading.Thread(target=feed) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield outcomes
        finally:
            ending.set()
            for thread in threads:
                thread.join(LIMIT)


FAULTS: dict[str, Callable[[], Bundle]] = {
    "hanging": lambda: bundle(1e6),
    "slow": lambda: bundle(0.3),
    "failing": lambda: bundle(kind="failing"),
    "wrong": lambda: bundle(kind="doubling"),
    "damaged": bundle,
    "crashing": lambda: bundle(kind="crashing"),
}
# Of which a server sees some; one that crashes it comes last.
SEEN = [fault for fault in FAULTS if fault != "crashing"]


def add_version(path: Path, fault: str) -> None:
    staging = path.with_name(f".{path.name}")
    FAULTS.get(fault, bundle)().save(staging)
    if fault == "damaged":
        (staging / "manifest.json").write_bytes((staging / "manifest.json").read_bytes()[:-9])
    staging.rename(path)


def await_verdict(server: Server, name: str) -> str:
    deadline = time.monotonic() + LIMIT
    while True:
        for line in server.log().splitlines():
            if f"version '{name}' is" in line:
                return line
        assert server.process.poll() is None, server.log()
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.05)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    bundle().save(tmp_path / "base")
    (tmp_path / "versions").mkdir()
    return tmp_path / "base", tmp_path / "versions"


def test_a_version_that_hangs_does_not_keep_the_server(root: Path, folders: tuple[Path, Path]) -> None:
    base, folder = folders
    with Server(root, base, folder, "--shadow", 3) as server, load(server.port, 1) as outcomes:
        add_version(folder / "v1", "hanging")
        time.sleep(1.5)
        assert server.terminate() < MOST_S
        assert "v1" not in server.log()
    assert [outcome for outcome in outcomes if isinstance(outcome, float)]


def test_a_difference_is_judged_in_the_shadow_only(command: Any, folders: tuple[Path, Path]) -> None:
    result = command("serve", "--run", folders[0], "--watch", folders[1], "--most-different", 0.1)
    assert result.status == 2
    assert "--most-different compares outputs in the shadow" in result.err


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_updates_under_load(root: Path, folders: tuple[Path, Path]) -> None:
    base, folder = folders
    rng, count = random.Random(0), 100
    faults = dict(zip(rng.sample(range(count - 1), 30), itertools.cycle(SEEN), strict=False))
    options = ("--shadow", 3, "--most-different", 0.01)
    with Server(root, base, folder, *options) as server, load(server.port) as outcomes:
        for number in range(count):
            fault = faults.get(number, "")
            add_version(folder / f"v{number}", fault)
            verdict = await_verdict(server, f"v{number}")
            assert ("is at work" in verdict) == (not fault), (fault, verdict)
            if number != count - 1:
                shutil.rmtree(folder / f"v{number}")
        errors = [outcome for outcome in outcomes if not isinstance(outcome, float)]
        assert not errors
        print(f"{len(outcomes)} frames, none failed, the longest took {max(outcomes):.2f} s")
        add_version(folder / "v100", "hanging")
        time.sleep(1.0)
        seconds = server.terminate()
        print(f"SIGTERM ended it after {seconds:.2f} s")
        assert seconds < MOST_S
    with Server(root, base, folder, *options) as server:
        assert "version 'v99' ran last, and is at work again" in server.log()
        with load(server.port) as outcomes:
            time.sleep(1.0)
        assert outcomes
        assert all(isinstance(outcome, float) for outcome in outcomes)
        # A version that ends the process is not run again.
        with load(server.port):
            add_version(folder / "v101", "crashing")
            server.process.wait(LIMIT)
    with Server(root, base, folder, *options) as server:
        assert server.log().count("version 'v99' ran last, and is at work again") == 2
        with load(server.port) as outcomes:
            time.sleep(1.0)
        assert all(isinstance(outcome, float) for outcome in outcomes)
