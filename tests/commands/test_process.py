"""Commands in a process of their own: Ctrl-C, pipes that close early, a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LIMIT = 60.0
SHOW_CURSOR = "\x1b[?25h"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Frames for many minutes, in a file without content on the disk."""
    path = tmp_path / "endless.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (100_000, 1, 1, 32, 32)).flush()
    return path


@contextlib.contextmanager
def end_of(child: Any) -> Iterator[Any]:
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, dict[str, Any]]]:
    """Open a terminal, and give our end of it and how to start a process with the other end as standard error."""
    ours, theirs = pytest.importorskip("pty").openpty()
    yield ours, {"stderr": theirs, "env": {**os.environ, "TERM": "xterm", "COLUMNS": "120"}}
    os.close(ours)


def metrics(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_a_long_stream_ends_it_at_once(
    process: Any, bundle: Path, endless: Path, tmp_path: Path, signal_number: signal.Signals
) -> None:
    """The results until then are complete, the trace is there to be looked at, and no thread keeps the process."""
    pytest.importorskip("prometheus_client")
    out, trace = tmp_path / "out.npz", tmp_path / "trace.json"
    options = ["--metrics", 0, "--output", out, "--trace", trace]
    with end_of(process("run", bundle, "--input", endless, *options)) as child:
        url = child.stderr.readline().removeprefix("metrics: ").strip()
        deadline = time.monotonic() + LIMIT
        while 'end="delivered",reason=""} 0.0' in metrics(url) and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal_number)
        start = time.monotonic()
        text, errors = child.communicate(timeout=LIMIT)
    assert time.monotonic() - start < 10, "about one second on an idle machine"
    assert (child.returncode, text, errors) == (130, "", "soc-pipeline: interrupted\n")
    assert sorted(tmp_path.iterdir()) == [endless, out, trace]
    with np.load(out) as archive:
        (results,) = archive.values()
    assert results.shape[1:] == (1, 10)
    assert 0 < len(results) < 100_000
    assert any(record["name"] == "run 0" for record in json.loads(trace.read_text())["traceEvents"])


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_live_source_ends_by_a_signal(
    process: Any, bundle: Path, tmp_path: Path, signal_number: signal.Signals
) -> None:
    """An ordinary end: what came out is whole, and told."""
    pytest.importorskip("av")
    out = tmp_path / "out.jsonl"
    options = ["--source", "pattern:64x48@100", "--resize", "letterbox", "--sink", out, "--json"]
    with end_of(process("run", bundle, *options)) as child:
        deadline = time.monotonic() + LIMIT
        while not (out.exists() and out.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal_number)
        text, errors = child.communicate(timeout=LIMIT)
    assert (child.returncode, errors) == (0, "")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    # An interrupt may cost the frame that is being submitted: then it was computed, and nobody took it.
    assert json.loads(text)["delivered"] - len(lines) in (0, 1)
    assert [line["number"] for line in lines] == list(range(len(lines)))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_who_has_seen_enough_is_no_failure(process: Any, digits_onnx: Path, options: list[str]) -> None:
    with end_of(process("inspect", digits_onnx, *options)) as child:
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(LIMIT) == 0
        child.stdout = None


def test_closed_and_full_outputs(root: Path, digits_onnx: Path) -> None:
    line = f'"{sys.executable}" -m pipeline.cli inspect "{digits_onnx}"'
    for redirection, status, error in (
        (">&-", 0, ""),
        (">/dev/full", 1, "soc-pipeline: input or output: No space left on device\n"),
    ):
        if "/dev/full" in redirection and not Path("/dev/full").exists():
            continue
        result = subprocess.run(
            ["sh", "-c", line + redirection], cwd=root, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert (result.returncode, result.stdout, result.stderr) == (status, "", error)


def test_ctrl_c_in_a_measurement_leaves_the_terminal_as_it_was(process: Any, bundle: Path) -> None:
    with terminal() as (ours, options), end_of(process("bench", bundle, "--frames", 100_000, **options)) as child:
        os.close(options["stderr"])
        screen = ""
        while "round 1" not in screen:
            screen += _read(ours).decode(errors="replace") or pytest.fail(screen)
        child.send_signal(signal.SIGINT)
        remainder = _all(ours)
        assert (child.wait(LIMIT), child.stdout.read()) == (130, "")
    assert remainder.endswith("soc-pipeline: interrupted\r\n")
    assert SHOW_CURSOR in remainder
    assert "Traceback" not in remainder


def test_on_a_terminal_a_live_table_is_shown_beside_the_result(process: Any, bundle: Path, frames: Path) -> None:
    line = ["run", bundle, "--input", frames, "--json"]
    with terminal() as (ours, options), end_of(process(*line, **options)) as child:
        os.close(options["stderr"])
        screen = _all(ours)
        text, _ = child.communicate(timeout=LIMIT)
    assert child.returncode == 0
    assert json.loads(text)["delivered"] == 6
    for expected in ("stage0", "stage1", "run p50 ms", "6 delivered"):
        assert expected in screen


def _all(terminal: int) -> str:
    return b"".join(iter(lambda: _read(terminal), b"")).decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other end has closed
        return b""
