"""Published figures: each names its source, and boards, devices and models that there are."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from boards import published
from pipeline.errors import BoardError

FIGURE = 'board = "raspberry-pi-5"\ndevice = "cpu"\nruntime = "ncnn"\nsource = "s"\ndate = 2026-01-01\n'
ROW = 'model = "resnet50", precision = "float32"'


def test_every_figure_is_possible_and_names_its_source() -> None:
    figures = published.figures()
    assert len(figures) >= 200
    for figure in figures:
        assert figure.source.startswith("https://")
        assert date(2015, 1, 1) < figure.date < date(2030, 1, 1)
        assert figure.model in published.MODELS
        # From a face detector on an NPU to a large network on two slow cores.
        assert 1e-4 < figure.seconds < 60
    keys = [(f.board, f.device, f.model, f.size, f.precision, f.runtime, f.threads, f.cores, f.source, f.note)
            for f in figures]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_the_figures_of_one_board_are_some_of_all() -> None:
    figures = published.figures("rk3588")
    assert {figure.board for figure in figures} == {"rk3588"}
    assert {figure.device for figure in figures} >= {"cpu", "npu0"}
    assert set(figures) < set(published.figures())


def test_keys_above_the_figures_hold_for_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(f"{FIGURE}figures = [{{ {ROW}, ms = 30, batch = 2 }}, {{ {ROW}, frames_per_s = 4 }}]\n")
    first, second = published.read(path)
    assert (first.board, first.source, first.seconds) == ("raspberry-pi-5", "s", 0.015)
    assert second.seconds == 0.25


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"{ROW}, ms = 1, clock = 2", r"figure 0: unknown key 'clock'; known are .*did you mean 'clock_hz'"),
        ('model = "resnet51", precision = "int8", ms = 1', "unknown model 'resnet51'; did you mean 'resnet50'"),
        (f'{ROW}, ms = 1, board = "rk3589"', "unknown board 'rk3589'"),
        (f'{ROW}, ms = 1, device = "npu"', "has no device 'npu'"),
        (f"{ROW}, ms = 1, frames_per_s = 1", "either 'ms' or 'frames_per_s'"),
        (ROW, "either 'ms' or 'frames_per_s'"),
        (f"{ROW}, ms = 1, cores = [4]", r"has the cores \[0, 1, 2, 3\]"),
        (f"{ROW}, ms = 1, threads = 5", r"has the cores \[0, 1, 2, 3\]"),
        ('model = "resnet50", precision = "int4", ms = 1', "int4"),
        ('model = "resnet50", ms = 1', "precision"),
    ],
)
def test_an_impossible_figure_is_an_error_that_names_it(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(f"{FIGURE}figures = [{{ {row} }}]\n")
    with pytest.raises(BoardError, match=rf"(?s)f\.toml: figure 0: .*{message}|f\.toml: {message}"):
        published.read(path)
