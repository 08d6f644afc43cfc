"""Child process: a command whose standard output is read, and its end."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
import weakref

from pipeline.errors import InputError
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.system.closable import Closable

GRACE_S = 0.5
"""Seconds between the wish to end and the kill: less than this process has itself after a signal."""

LAST_BYTES = 4096
"""Bytes of standard error that are kept for the message."""


def split_command(command: str) -> list[str]:
    """Return program and arguments; raise `InputError` if there is none, or a quotation is open."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise InputError(f"exec: {command!r}: {str(error).lower()}") from None
    if not arguments:
        raise InputError("exec: there is no command; write 'exec:PROGRAM ARGUMENTS?size=640x480&format=yuv420p'")
    return arguments


class ChildProcess(Closable):
    """A command, read as a file; it and its own children end with `close`.

    The command is quoted as for a shell, but no shell runs it. A command that goes on writing ends also after this
    process was killed, by its closed pipe. Reading fails after `silence_s` seconds without output. Raises `InputError`
    if it cannot be run.
    """

    def __init__(self, command: str, silence_s: float) -> None:
        self._arguments = split_command(command)
        self.name, self._silence_s, self._last = f"exec: {self._arguments[0]!r}", silence_s, b""
        # Else an interrupt could leave a child that nobody knows.
        uninterrupted(self._start)()

    def _start(self) -> None:
        try:
            # A session of its own: Ctrl-C of a terminal is for this process, which ends the child in its time.
            process = subprocess.Popen(  # noqa: S603 - the user's own command, see `SourceOptions.allow_commands`
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            reason = str(error.strerror).lower()
            raise InputError(f"cannot run {self.name}: {reason}; install it, or give its path") from None
        self._process = process
        # Also when it is collected, or the interpreter ends.
        self._end = weakref.finalize(self, _end_process, process)
        self._output, self._errors = (stream.fileno() for stream in (process.stdout, process.stderr) if stream)
        self._poll = select.poll()
        for descriptor in (self._output, self._errors):
            self._poll.register(descriptor, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end; `InputError` after too long a silence."""
        deadline = time.monotonic() + self._silence_s
        while (left := deadline - time.monotonic()) > 0:
            # Both in one: a command whose errors nobody reads would stand still.
            ready = self._ready(left)
            if self._errors in ready:
                self._read_errors()
            if self._output in ready:
                return os.read(self._output, size)
        raise InputError(f"{self.name} has written no picture for {self._silence_s:g} s{self._last_line()}")

    def read_exactly(self, size: int) -> bytearray:
        """Return `size` bytes, or fewer at the end."""
        data = bytearray()
        while len(data) < size and (part := self.read(size - len(data))):
            data += part
        return data

    def describe_failure(self) -> str:
        """Say how it failed; empty if it ended well, or has not ended."""
        status = _wait(self._process, GRACE_S)
        while self._errors in self._ready(0) and self._read_errors():
            pass
        if status is None or (status.si_code, status.si_status) == (os.CLD_EXITED, 0):
            return ""
        number = status.si_status
        end = f"status {number}" if status.si_code == os.CLD_EXITED else signal.Signals(number).name
        return f"{self.name} has ended with {end}{self._last_line()}"

    def close(self) -> None:
        """End it; may be called again."""
        self._end()

    def _ready(self, seconds: float) -> list[int]:
        return [descriptor for descriptor, _ in self._poll.poll(seconds * 1000)]

    def _read_errors(self) -> bytes:
        text = os.read(self._errors, 65536)
        self._last = (self._last + text)[-LAST_BYTES:]
        if not text:
            self._poll.unregister(self._errors)
        return text

    def _last_line(self) -> str:
        lines = self._last.decode(errors="replace").split("\n")
        return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> os.waitid_result | None:
    """Wait for a child without reaping it, so that its number stays its own."""
    deadline = time.monotonic() + seconds
    while True:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is not None or time.monotonic() > deadline:
            return status
        time.sleep(0.005)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    # The group has its number as long as it is not reaped: whoever is in it goes along.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):  # it has ended, or is root's
            os.killpg(process.pid, number)
        _wait(process, GRACE_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    # Not for ever: a driver may hold it, and root's ends by the closed pipe.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
