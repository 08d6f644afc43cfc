"""The onnx package's node cases end in a result or a refusal, here and in the C++ runner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEP = 24
"""Of the cases, every so many are tried; `bench/conformance.py` goes through all of them in Python."""

LIMIT_S = 1700.0


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 600)
def test_node_cases_raise_no_foreign_exception_and_end_by_no_signal(built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.node_cases", str(tmp_path), "0", str(STEP), str(built / "soc-run")]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    rows = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert process.returncode == 0, f"{rows[-1:]}: {process.stderr[-2000:]}"
    assert {row["case"]: row["wrong"] for row in rows if row.get("wrong")} == {}
    assert len(rows) > 2 * 20
