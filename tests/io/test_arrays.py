from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.io import sinks
from pipeline.io.frame import Delivered, Frame
from pipeline.plans import TensorSpec

PAIR = (TensorSpec("left", (2,)), TensorSpec("right", (2,)))


def result(name: str = "a", **outputs: object) -> Delivered:
    return Delivered(Frame(name, np.zeros(1), 0), outputs)


def test_one_file_holds_all_results_stacked(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    with sinks.several([str(path)], PAIR) as sink:
        for number in range(3):
            sink.add(result(left=np.full(2, number), right=np.full(2, -number)))
        assert not path.exists()
    with np.load(path) as stored:
        assert stored["left"].tolist() == [[0, 0], [1, 1], [2, 2]]
        assert stored["right"].tolist() == [[0, 0], [-1, -1], [-2, -2]]
    # As any other file, and not for the owner only as temporary files are.
    (tmp_path / "other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), sinks.several([str(path)], PAIR[:1]) as sink:
        sink.add(result(left=np.zeros(2)))
        raise ZeroDivisionError
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


@pytest.mark.parametrize(("shapes", "message"), [((2, 3), "several shapes"), ((), "no results")])
def test_what_cannot_be_stacked_is_one_error(tmp_path: Path, shapes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message), sinks.several([str(tmp_path / "out.npz")], PAIR[:1]) as sink:
        for shape in shapes:
            sink.add(result(left=np.zeros(shape)))
    assert not list(tmp_path.iterdir())


def test_a_folder_holds_one_file_for_each_frame_and_loses_none(tmp_path: Path) -> None:
    with sinks.several([str(tmp_path / "out")], PAIR[:1]) as sink:
        for number, name in enumerate(["a", "a-2", "a", "a"]):
            sink.add(result(name, left=np.full(2, number)))
    found = {path.name: np.load(path)["left"][0] for path in (tmp_path / "out").iterdir()}
    assert found == {"a.npz": 0, "a-2.npz": 1, "a-3.npz": 2, "a-4.npz": 3}


def test_without_an_output_nothing_is_written(tmp_path: Path) -> None:
    with sinks.several([], PAIR) as sink:
        sink.add(result(left=np.zeros(2)))
    assert not list(tmp_path.iterdir())


def test_one_sink_that_cannot_be_opened_takes_none_of_the_others_along(tmp_path: Path) -> None:
    texts = [str(tmp_path / "a.npz"), str(tmp_path / "b.gif")]
    with pytest.raises(InputError, match=r"b\.gif"), sinks.several(texts, PAIR):
        pytest.fail("opened")
    assert not list(tmp_path.iterdir())


def test_one_sink_that_cannot_be_finished_gives_up_those_behind_it(tmp_path: Path) -> None:
    texts = [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
    with pytest.raises(InputError, match="no results"), sinks.several(texts, PAIR):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/out.npz", "no folder"),
        ("out.txt", r"give a \.npz"),
        ("file", "is a file"),
        ("out.npz?codec=ffv1", "takes no options"),
        ("out.jsonl?top", "has no value"),
        ("out.mp4?show=all", "'label' or 'boxes'"),
        ("out.mp4?labels=file", "belong to show"),
        ("out.mp4?show=label&labels=missing", "no labels"),
        ("out.mp4?show=boxes&least=x", "least is 'x'"),
        ("out.mp4?codecs=x", "did you mean 'codec'"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    if name.startswith("out.mp4"):
        pytest.importorskip("av")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=message), sinks.several([str(tmp_path / name)], PAIR):
        pytest.fail("opened")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
