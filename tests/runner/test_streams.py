"""The runner gives the answers of the Python runtime, bit for bit, and keeps its promises about frames."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.executor import host_target
from tests.support.runner import OK, Library, RunnerError


def images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal((1, 1, 32, 32), np.float32) for _ in range(count)]


def python_outputs(path: Path, frames: list[np.ndarray]) -> list[np.ndarray]:
    with pipeline.load(path) as running:
        return list(running.map(frames))


@pytest.mark.parametrize("in_flight", [0, 1, 3])
def test_outputs_are_those_of_the_python_runtime(digits: Path, library: Library, in_flight: int) -> None:
    frames = images(40)
    with library.open(digits, in_flight=in_flight) as running:
        results = running.stream([{"image": frame} for frame in frames])
        books = running.statistics()
    assert [result.frame for result in results] == list(range(40))
    for result, expected in zip(results, python_outputs(digits, frames), strict=True):
        np.testing.assert_array_equal(result.arrays["logits"], expected)
    assert (books.submitted, books.delivered, books.in_flight) == (40, 40, 0)


def test_inputs_and_outputs_are_described(digits: Path, library: Library) -> None:
    with library.open(digits) as running:
        assert running.inputs == {"image": ((1, 1, 32, 32), "float32")}
        assert running.outputs == {"logits": ((1, 10), "float32")}


def test_stages_are_counted(digits: Path, library: Library) -> None:
    with library.open(digits) as running:
        running.stream([{"image": frame} for frame in images(5)])
        stages = [running.stage(number) for number in range(2)]
        assert [(stage.name, stage.frames_in, stage.frames_out) for stage in stages] == [
            (b"stage0", 5, 5), (b"stage1", 5, 5),
        ]  # fmt: skip
        assert all(stage.busy_s > 0 for stage in stages)
        with pytest.raises(RunnerError, match="there is no stage 2"):
            running.stage(2)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((1, 1, 32, 31), np.float32), "another shape"),
        (np.zeros((1, 1, 32, 32), np.float64), "another dtype than the bundle's, which is float32"),
        (np.zeros((32, 32), np.float32), "another shape"),
    ],
)
def test_wrong_inputs_are_refused(digits: Path, library: Library, array: np.ndarray, words: str) -> None:
    with library.open(digits) as running:
        with pytest.raises(RunnerError, match=f"input 'image' .*{words}"):
            running.submit(array)
        with pytest.raises(RunnerError, match="2 inputs given, 1 expected"):
            running.submit({"a": array, "b": array})
        assert running.statistics().submitted == 0


def test_a_submission_without_room_ends_in_time(digits: Path, library: Library) -> None:
    """Results that nobody has taken hold their places."""
    (image,) = images(1)
    with library.open(digits, in_flight=1) as running:
        assert running.submit(image) == 0
        with pytest.raises(TimeoutError):
            running.submit(image, timeout=0.01)
        result = running.next()
        assert result is not None
        assert result.status == OK
        assert running.submit(image) == 1
        books = running.close()
    assert (books.submitted, books.delivered, books.cancelled, books.in_flight) == (2, 1, 1, 0)


def test_waiting_for_a_frame_ends_in_time_and_after_the_last(digits: Path, library: Library) -> None:
    with library.open(digits) as running:
        with pytest.raises(TimeoutError):
            running.next(timeout=0.0)
        running.finish()
        assert running.next() is None
        with pytest.raises(RunnerError, match="takes no more frames"):
            running.submit(images(1)[0])


def test_a_bundle_that_is_not_there_is_an_error(library: Library) -> None:
    with pytest.raises(RunnerError, match="'/nowhere' cannot be opened: No such file or directory"):
        library.open("/nowhere")


def test_the_code_of_one_bundle_is_not_taken_for_that_of_another(digits: Path, library: Library, root: Path) -> None:
    """The system's loader remembers names, and descriptors that were closed come back under the same number."""
    (image,) = images(1)
    kept = root / "tests/executor/bundles" / f"format-1-{host_target.machine()}"
    for _ in range(2):
        with library.open(digits) as running:
            assert running.stream([{"image": image}])[0].status == OK
        with library.open(kept) as running:
            assert running.stream([{"x": np.zeros((1, 4, 6, 6), np.float32)}])[0].status == OK


def mapped_files(bundle: Path) -> set[str]:
    """Return the files of a folder that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[-1]).name for line in lines if str(bundle) in line}


def test_parameters_that_nobody_may_write_are_mapped(library: Library, digits: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(digits, tmp_path / "fixed.bundle"))
    image = {"image": np.ones((1, 1, 32, 32), np.float32)}
    with library.open(bundle) as running:
        (result,) = running.stream([image])
        assert not mapped_files(bundle), "they may be overwritten"
    for path in bundle.glob("*.parameters"):
        path.chmod(0o444)
    with library.open(bundle) as running:
        assert mapped_files(bundle) == {"stage0.parameters", "stage1.parameters"}
        (same,) = running.stream([image])
    assert not mapped_files(bundle)
    for name, array in result.arrays.items():
        np.testing.assert_array_equal(array, same.arrays[name])
