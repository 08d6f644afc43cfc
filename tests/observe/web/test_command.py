from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pipeline import cli

pytest.importorskip("tornado")


@pytest.mark.slow
def test_bench_shows_what_it_measures(digits_onnx: Path, root: Path) -> None:
    options = ["--stages", "2", "--rounds", "1", "--frames", "20", "--view", "0"]
    line = [sys.executable, "-m", "pipeline.cli", "bench", str(digits_onnx), *options]
    with subprocess.Popen(line, cwd=root, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        kind, _, url = process.stderr.readline().strip().partition(" ")
        assert (kind, url.startswith("http://127.0.0.1:")) == ("view:", True)
        with urllib.request.urlopen(f"{url}events", timeout=60) as answer:
            updates = [json.loads(line[6:]) for line in answer if line.startswith(b"data: ")]
    assert process.returncode == 0
    # The last update comes when the command ends, and is of the pipeline itself.
    assert updates[-1]["frames"]["ends"]["delivered"] == 20
    assert len(updates[-1]["timeline"]["rows"]) == 2
    assert len({frame for _, frame, *_ in updates[-1]["timeline"]["events"]}) > 5


@pytest.mark.parametrize(
    ("port", "words"),
    [("x", "--view is 'x'"), ("-1", "--view is '-1'"), ("70000", "--view is '70000'; it must be a port")],
)
def test_a_port_that_is_none_is_refused_before_anything_is_measured(
    digits_onnx: Path, port: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", str(digits_onnx), "--stages", "2", f"--view={port}"]) == 2
    assert words in capsys.readouterr().err
