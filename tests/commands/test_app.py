"""Applications on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

APP = """
[stream.a]
source = "pattern:32x32"

[model.digits]
file = "{bundle}"

[function.interval]
call = "tests.commands.test_app:note_interval"
reads = ["digits"]
"""

INTERVALS: list[float] = []


def note_interval(*_: object) -> None:
    """Note the process's switch interval."""
    INTERVALS.append(sys.getswitchinterval())


def test_python_takes_turns_as_often_as_the_shortest_stage_needs(
    command: Callable[..., Any], bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    file, interval = tmp_path / "app.toml", sys.getswitchinterval()
    file.write_text(APP.format(bundle=bundle))
    result = command("app", "run", file, "--frames", 2, "--allow-commands")
    assert (result.status, result.out) == (0, "a: 2 frames\n"), result.err
    assert len(INTERVALS) == 2
    assert max(INTERVALS) < interval == sys.getswitchinterval()
