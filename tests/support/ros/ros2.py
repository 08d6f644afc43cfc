"""Releases of ROS 2 beside this project, and their nodes as peers of tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RELEASES = ("jazzy", "kilted")
PROGRAM = Path(__file__).parents[2] / "ros" / "peers" / "rclpy_peer.py"


def find_python(root: Path, release: str) -> Path:
    """Return the interpreter of a release's environment, or skip the test."""
    folder = Path(os.environ.get("ROS_PEERS", root / ".venv")) / f"ros-{release}"
    if not (folder / "installed").exists():
        pytest.skip(f"there is no ROS 2 {release.capitalize()}; 'make test-ros' installs it")
    return folder / "bin" / "python"


def settings(domain: int, folder: Path) -> dict[str, str]:
    """Return the variables for a node of ROS 2 that stays on this machine."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(folder),
        "ROS_HOME": str(folder),
    }


class Ros2Peer:
    """A node of ROS 2 in a process of its own; its methods are those of `Peer` in ``rclpy_peer.py``."""

    def __init__(self, python: Path, environment: dict[str, str], name: str = "peer") -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.process = subprocess.Popen(
            [str(python), str(PROGRAM), name], text=True, env={**variables, **environment}, **pipes
        )

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps([method, arguments]) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

        return call

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.communicate()
