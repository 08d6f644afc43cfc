"""Arrays where kernels can use them, on pages that cost little to find."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline.system import memory
from pipeline.system.memory import ALIGNMENT, LARGE_PAGE


def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "large": generator.standard_normal((600, 1000)).astype(np.float32),
        "odd": np.arange(7, dtype=np.int8),
        "none": np.zeros((0, 4), np.float32),
        "turned": generator.standard_normal((40, 50)).T,
        "flags": np.array([[True, False]]),
    }


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7, 11)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
def test_empty_arrays_are_aligned(shape: tuple[int, ...], dtype: str) -> None:
    array = memory.empty(shape, dtype)
    assert (array.shape, str(array.dtype)) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % ALIGNMENT == 0 or not array.size


def test_arrays_that_are_moved_together_are_the_same() -> None:
    originals = arrays()
    arrays_in_pages = memory.move_together(originals)
    assert not originals
    for (name, array), (expected_name, expected) in zip(arrays_in_pages.items(), arrays().items(), strict=True):
        assert (name, array.dtype) == (expected_name, expected.dtype)
        np.testing.assert_array_equal(array, expected)
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_arrays_that_are_moved_together_lie_one_behind_the_other_from_a_large_page_on() -> None:
    spans = [(each.ctypes.data, each.nbytes) for each in memory.move_together(arrays()).values() if each.size]
    assert spans[0][0] % LARGE_PAGE == 0
    for (start, nbytes), (next_start, _) in itertools.pairwise(spans):
        assert next_start == memory.align_up(start + nbytes)


def test_few_bytes_are_not_worth_a_large_page() -> None:
    array = np.arange(5)
    assert memory.move_together({"small": array})["small"] is array


def test_pieces_are_what_is_mapped(tmp_path: Path) -> None:
    originals = list(arrays().values())
    path = tmp_path / "arrays"
    with path.open("wb") as stream:
        for piece in memory.pieces(originals):
            assert len(piece) <= LARGE_PAGE
            stream.write(piece)
    with path.open("rb") as stream:
        pages = memory.map_file(stream.fileno())
    start = 0
    for array in originals:
        start = memory.align_up(start)
        mapped_array = np.ndarray(array.shape, array.dtype, buffer=pages, offset=start)
        np.testing.assert_array_equal(mapped_array, array)
        start += array.nbytes
    assert start == len(pages)


def test_pages_that_were_released_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"soc" * 5000)
    with path.open("rb") as stream:
        pages = memory.map_file(stream.fileno())
    assert pages[:3] == b"soc"
    memory.release(pages)
    assert bytes(pages) == path.read_bytes()


def test_usable_is_what_tvm_takes_in_place() -> None:
    aligned = memory.empty((4, 4), "float32")
    shifted = memory.empty((17,), "float32")[1:]
    read_only = memory.empty((4,), "float32")
    read_only.flags.writeable = False
    assert memory.is_usable(aligned)
    assert not any(map(memory.is_usable, (shifted, read_only, aligned.T[1:], memory.empty((0,), "int8"))))


@pytest.mark.parametrize("name", sorted(arrays()))
def test_snapshots_are_usable_copies(name: str) -> None:
    original = arrays()[name]
    copy = memory.snapshot(original)
    np.testing.assert_array_equal(copy, original)
    assert memory.is_usable(copy) == bool(original.size)
    assert not np.may_share_memory(copy, original)


def test_a_mapped_file_is_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content := bytes(range(256)) * 33)
    with path.open("rb") as stream:
        pages = memory.map_file(stream.fileno())
    assert pages[:] == content
    pages[0] = 7
    assert pages[:2] == b"\x07\x01"
    memory.release(pages)
    assert (len(pages), path.read_bytes()) == (len(content), content)


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as stream, pytest.raises(ValueError, match="empty"):
        memory.map_file(stream.fileno())
