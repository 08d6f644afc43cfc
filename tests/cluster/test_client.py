"""A cluster that this machine is no node of, behind a token: frames take the way through its server for clients."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cluster.conftest import LIMIT, bundle, frame
from tests.cluster.test_mistakes import unused_port

pytestmark = pytest.mark.slow


class Head(NamedTuple):
    """The head of a cluster."""

    address: str
    environment: Mapping[str, str]


@pytest.fixture
def head(root: Path, tmp_path: Path) -> Iterator[Head]:
    """A node that takes clients in, who show the token of this test alone."""
    pytest.importorskip("ray", reason="needs ray: the extra 'ray'")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **token, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(root)}
    # It has sockets in it, whose names must not be long.
    folder = Path("/tmp") / f"soc-ray-{secrets.token_hex(4)}"
    ports = [unused_port(), unused_port()]
    line = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder}"]
    line += ["--include-dashboard=false", "--num-cpus=2", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}"]
    with (tmp_path / "head.log").open("wb") as log:
        process = subprocess.Popen(line, env=environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + LIMIT
            while b"Ray runtime started" not in (tmp_path / "head.log").read_bytes():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield Head(f"ray://127.0.0.1:{ports[1]}", environment)
        finally:
            # It ends its daemons itself.
            process.terminate()
            process.wait(LIMIT)


def run(environment: Mapping[str, str], *words: object) -> Any:
    line = [
        sys.executable,
        "-c",
        "import sys; from pipeline.cli import main; sys.exit(main())",
        "run",
        *map(str, words),
    ]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=2 * LIMIT)


def test_frames_go_there_and_strangers_do_not(head: Head, tmp_path: Path) -> None:
    path, frames = tmp_path / "chain.bundle", tmp_path / "frames.npy"
    # Cut into pieces; and what travels whole.
    for elements in (60_000, 4):
        bundle(elements=elements).save(path)
        np.save(frames, np.stack([frame(number, elements) for number in range(8)]))
        options = ["--cluster", head.address, "--replicas", 2, "--output", tmp_path / "out.npz", "--json"]
        result = run(head.environment, path, "--input", frames, *options)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["delivered"] == 8
        with np.load(tmp_path / "out.npz") as archive:
            np.testing.assert_array_equal(archive["t2"], np.load(frames))
    stranger = {**head.environment, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    result = run(stranger, path, "--input", frames, "--cluster", head.address)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "cannot be joined" in result.stderr
    assert "RAY_AUTH_TOKEN" in result.stderr
