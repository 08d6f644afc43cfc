"""Recordings of ``soc-pipeline run`` that end otherwise than planned have all frames until then."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import START
from tests.support import media

pytest.importorskip("av")
pytest.importorskip("rosbags")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")

LIMIT = 60.0
NAMES = ("out.mkv", "out.mp4", "out.npz", "bag", "out.jsonl")
Start = Callable[..., Any]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that passes pictures on; read only."""
    path = tmp_path_factory.mktemp("bundle") / "same.bundle"
    media.identity((48, 64, 3)).save(path)
    return path


def sinks(folder: Path) -> Sequence[str]:
    """Return the options for one sink of each kind; the lines come last, so that the others have what they have."""
    files = [f"{folder / 'out.mkv'}?codec=ffv1", folder / "out.mp4", folder / "out.npz", f"bag:{folder / 'bag'}"]
    return [f"--sink={place}" for place in (*files, folder / "out.jsonl")]


def count_recorded(folder: Path) -> int:
    """Return how many frames each of the sinks has, after checking that it is the same number."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    counts = {name: media.count(folder / name) for name in NAMES}
    assert len(set(counts.values())) == 1, counts
    return counts["out.jsonl"]


def wait_for_lines(path: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not (path.exists() and path.read_text().count("\n") > 3):
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


@contextmanager
def end_of(child: Any) -> Iterator[Any]:
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("source", "status"), [("pattern:64x48@200", 0), ("pattern:64x48", 130)])
@pytest.mark.one_in(2)
def test_a_signal_leaves_a_complete_recording(  # noqa: PLR0917 - fixtures
    process: Start, identity: Path, tmp_path: Path, signal_number: signal.Signals, source: str, status: int
) -> None:
    """A live source ends in order, and a recording at once; neither loses what is there."""
    with end_of(process("run", identity, "--source", source, *sinks(tmp_path))) as child:
        wait_for_lines(tmp_path / "out.jsonl")
        child.send_signal(signal_number)
        if signal_number != signal.SIGINT:
            # As service managers do, and the shell and the kernel together.
            child.send_signal(signal.SIGHUP)
            child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=LIMIT)
    assert (child.returncode, errors) == (status, "soc-pipeline: interrupted\n" if status else "")
    assert count_recorded(tmp_path) > 3


def test_a_terminal_that_goes_leaves_a_complete_recording(root: Path, identity: Path, tmp_path: Path) -> None:
    """Whatever is printed then, by the live table also, meets an error."""
    ours, theirs = pytest.importorskip("pty").openpty()
    local_value = "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    line = [sys.executable, "-c", local_value + START, "run", identity, "--source=pattern:64x48@200", *sinks(tmp_path)]
    environment = {**os.environ, "TERM": "xterm"}
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with end_of(subprocess.Popen([*map(str, line)], cwd=root, env=environment, **ends)) as child:
        os.close(theirs)
        wait_for_lines(tmp_path / "out.jsonl")
        os.close(ours)
        child.wait(LIMIT)
    assert count_recorded(tmp_path) > 3


def test_under_nohup_the_terminal_may_go(root: Path, identity: Path, tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    options = ["--source=pattern:64x48@200", "--frames=100", *sinks(tmp_path)]
    line = [sys.executable, "-c", ignoring + START, "run", identity, *options]
    with end_of(subprocess.Popen([*map(str, line)], cwd=root, stdout=subprocess.PIPE)) as child:
        wait_for_lines(tmp_path / "out.jsonl")
        child.send_signal(signal.SIGHUP)
        out, _ = child.communicate(timeout=LIMIT)
    assert (child.returncode, out.split(b" ")[0]) == (0, str(count_recorded(tmp_path)).encode())


def test_a_lost_stream_leaves_a_complete_recording(command: Any, identity: Path, tmp_path: Path) -> None:
    """It comes over the network, and its sender goes in the middle."""
    message = media.write(tmp_path / "sent.ts", list(media.noise(60)), "mpeg4", "yuv420p")
    folder = tmp_path / "recorded"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve_once, args=(server, message.read_bytes()), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/live.ts"
        result = command("run", identity, "--source", url, "--admission", "block", *sinks(folder))
    assert (result.status, result.out) == (1, "")
    assert "live.ts is lost after" in result.err
    assert count_recorded(folder) > 3


def serve_once(server: socket.socket, data: bytes) -> None:
    """Answer one request with the beginning of a stream, and close the connection."""
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n" + data[: len(data) * 3 // 4])


def test_a_full_disk_leaves_what_fits(root: Path, identity: Path, tmp_path: Path) -> None:
    """A limit on the sizes of files takes the place of the disk."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, {resource.RLIM_INFINITY})); {START}"
    out = tmp_path / "out.mkv"
    options = ["--source=pattern:64x48", f"--sink={out}?codec=rawvideo"]
    result = subprocess.run(
        [sys.executable, "-c", code, "run", str(identity), *options],
        cwd=root, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert result.returncode != 0
    assert "file too large" in result.stderr.lower()
    assert 10 < media.count(out) < 100
