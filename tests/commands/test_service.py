"""Services of systemd: the unit that is written, and what the manager is told."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.system_tools import skip_without

SERVE = ("--", "serve", "--port", "9123")


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The command, as it is on the path of whoever has installed it."""
    path = tmp_path / "bin" / "soc-pipeline"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(path)])
    return path


def test_a_unit_that_systemd_accepts(command: Any, tmp_path: Path, program: Path) -> None:
    path = tmp_path / "soc-pipeline-camera.service"
    odd = tmp_path / 'a "b" 100% $x'
    odd.mkdir()
    options = ("--cores", "0,1", "--watchdog", 7, "-o", path)
    result = command("service", "install", "camera", *options, "--", "serve", "--bundles", odd)
    assert (result.status, result.err) == (0, "")
    assert "systemctl --user daemon-reload" in result.out
    text = path.read_text()
    assert f"ExecStart={program} serve --bundles " in text
    assert "CPUAffinity=0 1\n" in text
    assert "WatchdogSec=7\n" in text
    assert "WantedBy=default.target" in text
    # Debian 12's; others were not tried.
    skip_without("systemd-analyze", (252,))
    verdict = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(path)], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    # What it says of other units, or of a session that is not there, is not about this one.
    assert not [line for line in verdict.stderr.splitlines() if path.name in line]


def test_a_unit_of_the_machine(command: Any) -> None:
    result = command("service", "install", "board", "--system", "--user", "pi", "-o", "-", *SERVE)
    assert result.status == 0
    assert "\nUser=pi\n" in result.out
    assert "\nCapabilityBoundingSet=\n" in result.out
    assert "WantedBy=multi-user.target" in result.out


def test_root_runs_it_only_if_asked(command: Any, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(open_folder)
    text = command("service", "install", "board", "--system", "-o", "-", *SERVE).out
    assert "\nDynamicUser=true\n" in text
    assert "\nProtectSystem=strict\n" in text
    assert "\nStateDirectory=soc-pipeline-board\n" in text
    assert "\nUser=" not in text
    text = command("service", "install", "board", "--system", "--user", "root", "-o", "-", *SERVE).out
    assert "\nUser=root\n" in text
    assert "CapabilityBoundingSet" not in text


@pytest.fixture
def open_folder(program: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all users may enter, with the program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(program, folder / program.name)
        monkeypatch.setattr(sys, "argv", [str(folder / program.name)])
        yield folder


def test_a_folder_that_others_cannot_enter_needs_a_user(
    command: Any, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_folder.chmod(0o700)
    monkeypatch.chdir("/")
    result = command("service", "install", "board", "--system", "-o", "-", *SERVE)
    assert (result.status, result.out) == (2, "")
    assert f"{str(open_folder)!r} is not open to all users" in result.err


@pytest.mark.parametrize("options", [(), ("--user", "nobody")], ids=["its own user", "another user"])
def test_little_is_exposed(
    command: Any, open_folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    program = shutil.which("systemd-analyze")
    version = "" if program is None else subprocess.check_output([program, "--version"], text=True, timeout=60)
    numbers = re.findall(r"\d+", version)
    if not numbers or int(numbers[0]) < 250:
        pytest.skip("systemd-analyze is not installed, or older than 250")
    monkeypatch.chdir(open_folder)
    path = open_folder / "board.service"
    assert command("service", "install", "board", "--system", *options, "-o", path, *SERVE).status == 0
    line = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    verdict = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", verdict.stdout)
    if exposure is None:
        pytest.skip(f"systemd-analyze does not judge units here: {verdict.stderr}")
    print(exposure[0])
    assert float(exposure[1]) < 4


def test_no_word_begins_another_line(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a\nExecStartPre=b"
    folder.mkdir()
    for words in (
        ("--system", "--user", "pi\nExecStartPre=/bin/b", "-o", "-", *SERVE),
        ("-o", "-", *SERVE, "--bundles", "a\nExecStartPre=b"),
        ("-o", "-", *SERVE, "--bundles", "a\x85\x7f"),
        ("-o", "-", *SERVE, "--bundles", "a\udc80"),
    ):
        result = command("service", "install", "x", *words)
        assert (result.status, result.out) == (2, "")
        assert len(result.err.splitlines()) == 1
    for name in (folder, tmp_path / "b ", tmp_path / "b\\"):
        name.mkdir(exist_ok=True)
        monkeypatch.chdir(name)
        result = command("service", "install", "x", "-o", "-", *SERVE)
        assert (result.status, result.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("../x", *SERVE), "is no name of a service"),
        (("x", "--user", "pi", *SERVE), "--user is for --system"),
        (("x", "--", "build", "m.onnx"), "'build' is behind '--', but a service runs one of serve, run, node"),
        (("x", "--", "serve", "--port", "x"), "soc-pipeline serve: --port is 'x'"),
    ],
)
def test_wrong_use_is_one_line(command: Any, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = command("service", "install", *arguments[:1], "-o", tmp_path / "unit", *arguments[1:])
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "unit").exists()


def test_the_manager_is_told(process: Any, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}
        child = process("serve", "--port", 0, env=environment)
        assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == manager.recv(100) == b"WATCHDOG=1"
        child.send_signal(signal.SIGTERM)
        while (state := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"
        child.communicate(timeout=60)


def test_a_manager_that_has_gone_ends_nothing(process: Any, tmp_path: Path) -> None:
    child = process("serve", "--port", 0, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert child.stdout.readline().startswith("Serving remote://")
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
