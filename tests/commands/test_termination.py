"""Signals end commands, whatever those are at; errors that nobody expects are one line."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

LIMIT = 60.0
SAID = "soc-pipeline: interrupted\n"

COMMAND = """
import hashlib, sys, threading, time
from pipeline.commands.shared import termination
from pipeline.system.native_output import quietly

def begin():
    print("begins", flush=True)

def quiet():
    begin()
    time.sleep(1000)

def native():
    # Not from the call itself, which a signal shall find the process in.
    threading.Timer(0.3, begin).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

def clean():
    try:
        begin()
        # Not one sleep: a signal just before its system call would wait for its end.
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        time.sleep(termination.LIMIT_S + 0.5)
        print("a clean end")

with termination.interrupts():
    {"quiet": lambda: quietly(quiet), "native": native, "clean": clean}[sys.argv[1]]()
"""


def run(root: Path, action: str, signals: Sequence[signal.Signals]) -> tuple[int, str, str]:
    """Let a command do something, send it signals, and return its status and what it prints."""
    command = [sys.executable, "-c", COMMAND, action]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        # Stopped meanwhile: a busy machine must not put seconds between two signals that are one request.
        for number in (signal.SIGSTOP, *signals, signal.SIGCONT):
            process.send_signal(number)
        try:
            output, errors = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    return process.returncode, output, errors


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT, signal.SIGTERM]], ids=repr)
@pytest.mark.parametrize("action", ["quiet", "native"])
@pytest.mark.one_in(2)
def test_a_signal_ends_what_cannot_be_interrupted(root: Path, action: str, signals: Sequence[signal.Signals]) -> None:
    """A command that read a file without end was ended by SIGKILL only."""
    assert run(root, action, signals) == (130, "", SAID)


@pytest.mark.parametrize("action", ["quiet", "native"])
def test_a_second_ctrl_c_ends_it(root: Path, action: str) -> None:
    command = [sys.executable, "-c", COMMAND, action]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=LIMIT) == ("", SAID)
        finally:
            process.kill()
    assert process.returncode == 130


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGHUP]], ids=repr)
def test_a_clean_end_may_take_its_time(root: Path, signals: Sequence[signal.Signals]) -> None:
    """Two signals at once are one request, as of a service manager."""
    assert run(root, "clean", signals) == (0, "a clean end\n", "")


FORK = """
import os, signal, threading, time
from pipeline.commands.shared import termination

def fork():
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8

with termination.interrupts():
    fork()
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    time.sleep(termination.LIMIT_S + 0.5)
"""


def test_signals_of_a_child_are_not_its_parent_s(root: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


EARLY = """
import signal, sys
import soc_stages

class Interrupt:
    def find_spec(self, name, *_):
        if name == module:
            signal.raise_signal(signal.SIGINT)

_, module, *arguments = sys.argv
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = arguments
sys.exit(soc_stages.main())
"""


@pytest.mark.parametrize("module", ["pipeline.cli", "argparse", "pipeline.commands.inspect"])
def test_ctrl_c_while_the_command_is_imported_is_one_line(root: Path, module: str) -> None:
    """In its first fifth of a second it ended in a traceback of Python's."""
    process = subprocess.run(
        [sys.executable, "-c", EARLY, module, "inspect", "nothing.onnx"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert (process.returncode, process.stdout, process.stderr) == (130, "", SAID)
