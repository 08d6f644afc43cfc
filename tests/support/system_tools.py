"""Programs of this system that tests use, where they are there and new enough."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

import pytest


@functools.cache
def find_fault(name: str, least: tuple[int, ...], *asks: str) -> str:
    """Return why a program cannot be used, empty if it can.

    Parameters
    ----------
    name : str
    least : tuple of int
        The oldest version that will do.
    *asks : str
        What asks for the version; by default the program itself, with ``--version``.
    """
    if shutil.which(name) is None or (asks and shutil.which(asks[0]) is None):
        return f"this system has no {name}"
    command = asks or (name, "--version")
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    match = re.search(r"\d+(?:\.\d+)*", result.stdout + result.stderr)
    version = match[0] if match else "0"
    if tuple(map(int, version.split("."))) < least:
        return f"this system's {name} is of version {version}, and this needs {'.'.join(map(str, least))} or newer"
    return ""


def skip_without(name: str, least: tuple[int, ...], *asks: str) -> None:
    """Skip the test, and say why."""
    if fault := find_fault(name, least, *asks):
        pytest.skip(fault)


SIGNATURES = find_fault("ssh-keygen", (8, 7), "ssh", "-V")
"""Why bundles cannot be signed here. Since 8.7, allowed signers have a last day."""
