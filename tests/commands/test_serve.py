"""``soc-pipeline serve`` as a user meets it; `tests.remote` has what it does for its clients."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

LIMIT = 60.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "http"], "--port is 'http'; it must be a port, or 0"),
        (["--port", "70000"], "--port is '70000'; it must be a port, or 0"),
        (["--bundles", "nowhere"], "--bundles 'nowhere' is no folder; make it, and copy bundles into it"),
        (["--uploads", "here"], "--uploads needs --accept-uploads, without which nothing is uploaded"),
        (["--cores", "a-b"], "--cores is 'a-b'; it must be like 0,1 or 4-7"),
        (["--cores", "100000"], "--cores: this process may not use core 100000; it may use ["),
        (["--cores", "0-999999999999"], "--cores: this process may not use core 999999999999; it may use ["),
        (["--sessions", "0"], "--sessions is '0'; it must be a whole number of at least 1"),
        (["--largest-frame", "1.5"], "--largest-frame is '1.5'; it must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_named(command: Any, options: list[str], message: str) -> None:
    result = command("serve", *options)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"soc-pipeline: {message}")
    assert len(result.err.splitlines()) == 1


def test_it_says_where_it_listens_and_ends_with_ctrl_c(process: Any) -> None:
    child = process("serve", "--port", 0)
    try:
        line = child.stdout.readline()
        assert line.startswith("Serving remote://127.0.0.1:")
        assert line.endswith("/cpu; end with Ctrl-C\n")
        child.send_signal(signal.SIGINT)
        text, errors = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
        child.communicate()
    assert (child.returncode, text) == (130, "")
    assert errors.splitlines() == [
        "no stage can be run that has code: give --bundles FOLDER, or --accept-uploads",
        "soc-pipeline: interrupted",
    ]


def test_the_cache_of_the_user_keeps_uploads(process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    child = process("serve", "--port", 0, "--json", "--accept-uploads")
    try:
        answer = json.loads(child.stdout.readline())
        assert answer["address"] == f"remote://127.0.0.1:{answer['port']}/cpu"
        assert (tmp_path / "cache" / "uploads").is_dir()
        assert (tmp_path / "cache" / "uploads").stat().st_mode & 0o777 == 0o700
    finally:
        child.kill()
        child.communicate()
