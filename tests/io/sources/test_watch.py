from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, SourceLost
from pipeline.io.sources.base import SourceOptions
from pipeline.io.sources.registry import open_source
from pipeline.io.sources.watch import WatchedFolder

SPEC = TensorSpec("x", (2,))


def store(path: Path, number: int) -> None:
    np.save(path, np.full(2, number, np.float32))
    # File systems stamp what is written soon after each other alike.
    os.utime(path, ns=(0, (number + 1) * 10**9))


def watch(folder: Path, *steps: Callable[[], object], **options: Any) -> WatchedFolder:
    """Return a source that takes one of `steps` between two looks; it may look twice more."""
    next_steps: Iterator[Callable[[], object]] = iter((*steps, *[lambda: None] * 2))

    def pause() -> None:
        next(next_steps)()

    return WatchedFolder(folder, [SPEC], pause=pause, **options)


def numbers(source: WatchedFolder, count: int) -> list[tuple[str, int]]:
    frames = islice(source, count)
    return [(frame.name, int(frame.inputs["x"][0])) for frame in frames]


def test_new_and_replaced_files_come_and_those_before_do_not(tmp_path: Path) -> None:
    store(tmp_path / "before.npy", 0)
    steps = (
        lambda: store(tmp_path / "b.npy", 1),
        (tmp_path / "notes.txt").touch,
        lambda: store(tmp_path / "a.npy", 2),
        lambda: None,
        lambda: store(tmp_path / "b.npy", 3),
    )
    assert numbers(watch(tmp_path, *steps), 3) == [("b", 1), ("a", 2), ("b", 3)]


def test_a_file_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "a.npy", tmp_path / "other"
    elsewhere.mkdir()
    store(elsewhere / "a.npy", 7)
    data = (elsewhere / "a.npy").read_bytes()
    pieces = [data[begin : begin + 40] for begin in range(0, len(data), 40)]

    def append(piece: bytes) -> None:
        with path.open("ab") as stream:
            stream.write(piece)

    steps = [lambda piece=piece: append(piece) for piece in pieces]
    assert numbers(watch(tmp_path, *steps), 1) == [("a", 7)]


def test_damaged_files_end_the_stream_or_are_skipped(tmp_path: Path) -> None:
    steps = (
        lambda: (tmp_path / "a.npy").write_bytes(b"no array"),
        lambda: store(tmp_path / "b.npy", 1),
    )
    with pytest.raises(InputError, match=r"a\.npy' is not a valid"):
        numbers(watch(tmp_path, *steps), 1)
    (tmp_path / "a.npy").unlink()
    (tmp_path / "b.npy").unlink()
    assert numbers(watch(tmp_path, *steps, damaged="skip"), 1) == [("b", 1)]


def test_a_file_that_is_gone_again_is_no_error(tmp_path: Path) -> None:
    def arrive() -> None:
        for number, name in enumerate(("a.npy", "b.npy", "c.npy")):
            store(tmp_path / name, number)

    names = []
    for frame in islice(watch(tmp_path, arrive), 2):
        names.append(frame.name)
        (tmp_path / "b.npy").unlink(missing_ok=True)
    assert names == ["a", "c"]


def test_a_folder_that_is_gone_is_a_lost_source(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(SourceLost, match="cannot be watched any more"):
        numbers(watch(folder, folder.rmdir), 1)


def test_pictures_are_prepared_and_the_text_is_watch_and_a_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    options = SourceOptions([TensorSpec("x", (1, 3, 4, 6))])
    with open_source(f"watch:{tmp_path}", options) as source:
        assert source.live
        image.fromarray(np.full((20, 30, 3), 255, np.uint8)).save(tmp_path / "a.png")
        frame = next(iter(source))
    assert isinstance(frame.inputs, dict)
    np.testing.assert_array_equal(frame.inputs["x"], np.ones((1, 3, 4, 6), np.float32))
    # Sinks draw on the photo itself.
    assert frame.picture is not None
    assert frame.geometry is not None
    assert (frame.picture.shape, frame.geometry.back(6, 4)) == ((20, 30, 3), (30, 20))


@pytest.mark.parametrize(
    ("text", "words"),
    [("watch:missing", "no folder to watch"), ("watch:.?damage=skip", "did you mean 'damaged'"),
     ("watch:.?damaged=x", "'refuse' or 'skip'")],
)  # fmt: skip
def test_what_cannot_be_watched_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_source(text, SourceOptions())
    with pytest.raises(InputError, match="its pace is its own"):
        open_source(text, SourceOptions(fps=3))
