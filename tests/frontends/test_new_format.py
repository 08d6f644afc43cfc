"""A format is one folder and one entry of the registry: the rest of the project asks the entry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_all_verbs_take_a_format_by_its_entry(root: Path, tmp_path: Path) -> None:
    # In a process of its own: the messages of this one name all formats that are registered.
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.new_format", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "read, built, run, compared, and exported\n"
