from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.sinks import registry
from pipeline.io.sinks.base import Sink, SinkGroup
from pipeline.io.source_frame import SourceFrame, StreamFrame

PAIR = (TensorSpec("left", (2,)), TensorSpec("right", (2,)))


def result(name: str = "a", **outputs: object) -> StreamFrame:
    return StreamFrame(SourceFrame(name, np.zeros(1), 0), outputs)


def test_one_file_holds_all_results_stacked(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    with registry.open_sinks([str(path)], PAIR) as sink:
        for number in range(3):
            sink.add(result(left=np.full(2, number), right=np.full(2, -number)))
        assert not path.exists()
    with np.load(path) as archive:
        assert archive["left"].tolist() == [[0, 0], [1, 1], [2, 2]]
        assert archive["right"].tolist() == [[0, 0], [-1, -1], [-2, -2]]
    # As any other file, and not for the owner only as temporary files are.
    (tmp_path / "other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_a_failure_before_the_first_result_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), registry.open_sinks([str(path)], PAIR[:1]):
        raise ZeroDivisionError
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_result_of_another_shape_is_one_error_and_those_before_it_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    with (
        pytest.raises(InputError, match=r"b: the results have several shapes, \[\(2,\)\] and \[\(3,\)\]"),
        registry.open_sinks([str(path)], PAIR[:1]) as sink,
    ):
        sink.add(result("a", left=np.ones(2)))
        sink.add(result("b", left=np.ones(3)))
    with np.load(path) as archive:
        assert archive["left"].tolist() == [[1, 1]]
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_result_there_is_nothing_to_stack(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results"), registry.open_sinks([str(tmp_path / "out.npz")], PAIR[:1]):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_holds_one_file_for_each_frame_and_loses_none(tmp_path: Path) -> None:
    with registry.open_sinks([str(tmp_path / "out")], PAIR[:1]) as sink:
        for number, name in enumerate(["a", "a-2", "a", "a"]):
            sink.add(result(name, left=np.full(2, number)))
    numbers = {path.name: np.load(path)["left"][0] for path in (tmp_path / "out").iterdir()}
    assert numbers == {"a.npz": 0, "a-2.npz": 1, "a-3.npz": 2, "a-4.npz": 3}


def test_without_an_output_nothing_is_written(tmp_path: Path) -> None:
    with registry.open_sinks([], PAIR) as sink:
        sink.add(result(left=np.zeros(2)))
    assert not list(tmp_path.iterdir())


def test_one_sink_that_cannot_be_opened_takes_none_of_the_others_along(tmp_path: Path) -> None:
    texts = [str(tmp_path / "a.npz"), str(tmp_path / "b.gif")]
    with pytest.raises(InputError, match=r"b\.gif"), registry.open_sinks(texts, PAIR):
        pytest.fail("opened")
    assert not list(tmp_path.iterdir())


def test_one_sink_that_cannot_be_finished_takes_none_of_the_others_along(tmp_path: Path) -> None:
    class Broken(Sink):
        def finish(self) -> None:
            raise OSError(28, "No space left on device")

    with (
        pytest.raises(OSError, match="No space"),
        SinkGroup([Broken(), registry.open_sink(str(tmp_path / "a.npz"), PAIR)]) as two,
    ):
        two.add(result(left=np.zeros(2), right=np.ones(2)))
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["right"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/out.npz", "no folder"),
        ("out.txt", r"give a \.npz"),
        ("file", "is a file"),
        ("out.npz?codec=ffv1", "takes no options"),
        ("out.jsonl?top", "has no value"),
        ("out.mp4?show=all", "'label' or 'boxes'"),
        ("out.mp4?least=0.5", "belong to show"),
        ("out.mp4?show=label&labels=missing", "no labels"),
        ("out.mp4?show=boxes&least=x", "least is 'x'"),
        ("out.mp4?codecs=x", "did you mean 'codec'"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    if name.startswith("out.mp4"):
        pytest.importorskip("av")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=message), registry.open_sinks([str(tmp_path / name)], PAIR):
        pytest.fail("opened")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
