from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pipeline import cli
from pipeline.commands.shared import console

pytest.importorskip("tornado")


@pytest.mark.slow
def test_bench_shows_what_it_measures(
    digits_onnx: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    threads: list[threading.Thread] = []
    notice = console.notice

    def look(url: str) -> None:
        with urllib.request.urlopen(f"{url}events", timeout=60) as answer:
            seen.extend(json.loads(line[6:]) for line in answer if line.startswith(b"data: "))

    def told(text: str) -> None:
        notice(text)
        threads.append(threading.Thread(target=look, args=(text.removeprefix("view: "),)))
        threads[0].start()

    monkeypatch.setattr(console, "notice", told)
    assert cli.main(["bench", str(digits_onnx), "--stages", "2", "--rounds", "1", "--frames", "20", "--view", "0"]) == 0
    threads[0].join()
    assert capsys.readouterr().err.startswith("view: http://127.0.0.1:")
    # The last update comes when the command ends, and is of the pipeline itself.
    assert seen[-1]["frames"]["ends"]["delivered"] == 20
    assert len(seen[-1]["timeline"]["rows"]) == 2
    assert len({frame for _, frame, *_ in seen[-1]["timeline"]["events"]}) > 5


@pytest.mark.parametrize(
    ("port", "words"),
    [("x", "--view is 'x'"), ("-1", "--view is '-1'"), ("70000", "--view is '70000'; it must be a port")],
)
def test_a_port_that_is_none_is_refused_before_anything_is_measured(
    digits_onnx: Path, port: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", str(digits_onnx), "--stages", "2", f"--view={port}"]) == 2
    assert words in capsys.readouterr().err
