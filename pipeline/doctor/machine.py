"""Machine: files, commands and packages that checks look at."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from pipeline.core.board.board import Device
from pipeline.executor import detection

# Debian's, and those of JetPack, CUDA and /usr/local.
LIBRARY_FOLDERS = (
    "usr/lib",
    "lib",
    "usr/local/lib",
    "usr/lib/*-linux-gnu*",
    "usr/lib/*-linux-gnu/*",
    "usr/local/cuda/lib64",
)

LIMIT_S = 10.0
"""Time limit of one command. A driver that hangs must not hang the doctor."""


def run_command(command: str) -> str | None:
    """Return a command's output, None if it is absent or fails."""
    # In English, whatever the user's language is.
    variables = {**os.environ, "LC_ALL": "C"}
    try:
        # No shell, and only commands of this package's files.
        done = subprocess.run(  # noqa: S603
            shlex.split(command), capture_output=True, timeout=LIMIT_S, check=True, env=variables
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def package_version(name: str) -> str:
    """Return the version of an installed distribution, else empty."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


# Compared by identity, so that what was read of one is kept.
@dataclass(frozen=True, eq=False)
class Machine:
    """The machine at hand, or a recorded one."""

    root: Path = Path("/")  # Folder of its ``/``
    run: Callable[[str], str | None] = run_command
    """Takes a command line, returns its output, or None if it is absent or fails."""
    package: Callable[[str], str] = package_version
    """Takes a Python distribution's name, returns its version, empty if it is not installed."""
    may_open: Callable[[str], bool] = lambda name: os.access(name, os.R_OK | os.W_OK)
    """Takes a device file's name, and tells if this user may read and write it."""
    why_absent: Callable[[Device], str] = detection.why_unusable
    """Takes a device, returns why its runtime cannot use it here, empty if it can."""
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)  # Environment variables

    def read(self, name: str) -> bytes:
        """Return a file's bytes, none if it cannot be read."""
        try:
            return (self.root / name.lstrip("/")).read_bytes()
        except OSError:
            return b""

    def text(self, name: str) -> str:
        """Return a file's text, empty if it cannot be read."""
        data = self.read(name)
        # A number in a device tree is a cell of four bytes; strings there end with a zero each.
        if name.startswith("/proc/device-tree") and len(data) == 4 and not data[0]:
            return str(int.from_bytes(data, "big"))
        return data.decode(errors="replace").replace("\0", "\n").strip()

    def files(self, *patterns: str) -> list[str]:
        """Return the names of files that match patterns."""
        paths = [path for pattern in patterns for path in sorted(self.root.glob(pattern.lstrip("/")))]
        return [f"/{path.relative_to(self.root).as_posix()}" for path in paths]

    def library(self, name: str) -> str:
        """Return the file of a shared library with its version, else empty."""
        # The longest name has all numbers of the version: libhailort.so, libhailort.so.4, libhailort.so.4.20.0.
        return max(self.files(*(f"{folder}/{name}*" for folder in LIBRARY_FOLDERS)), key=len, default="")

    def program(self, name: str) -> str:
        """Return the file of a program on the path, else empty."""
        folders = self.variables.get("PATH", "").split(os.pathsep)
        return next(iter(self.files(*(f"{folder}/{name}" for folder in folders if folder.startswith("/")))), "")

    def bus_devices(self, bus: str, number: str) -> list[str]:
        """Return the folders of PCI or USB devices, by numbers such as ``"1ac1:089a"``, or the first alone."""
        names = ("vendor", "device") if bus == "pci" else ("idVendor", "idProduct")
        folders = [name.rpartition("/")[0] for name in self.files(f"/sys/bus/{bus}/devices/*/{names[0]}")]
        wanted = number.split(":")
        return [
            folder
            for folder in folders
            if [self.text(f"{folder}/{name}").removeprefix("0x") for name in names[: len(wanted)]] == wanted
        ]

    @property
    def architecture(self) -> str:
        """Instruction set as the kernel calls it, such as ``"aarch64"``."""
        return (self.run("uname -m") or "").strip()
