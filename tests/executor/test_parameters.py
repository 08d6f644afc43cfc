"""Parameters beside the code: lifted out of a stage, kept in files of aligned arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from pipeline.executor import parameters
from pipeline.executor.parameters import SMALL, ParameterEntry
from pipeline.split import extract
from pipeline.system.memory import ALIGNMENT, room
from tests.support.onnx_models import IMAGE, check_outputs, node, save, weights

ARRAYS = {
    "odd": np.arange(7, dtype=np.float32),
    "half": weights(3, 5).astype(np.float16),
    "flags": np.array([[True, False, True]]),
    "none": np.zeros((0, 4), np.float32),
    "scalar": np.array(3, np.int64),
    "bytes": np.arange(65, dtype=np.uint8),
    "transposed": weights(4, 6).T,
    "a/name:0 with anything": np.array([1.5], np.float64),
}


def write_and_read(path: Path, entries: Sequence[ParameterEntry]) -> dict[str, np.ndarray]:
    return parameters.read(room_with(path.read_bytes()), entries)


def room_with(data: bytes) -> np.ndarray:
    bytes_there = room(len(data))
    bytes_there[:] = np.frombuffer(data, np.uint8)
    return bytes_there


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    (entries,) = parameters.write(tmp_path / "p", [ARRAYS])
    arrays = write_and_read(tmp_path / "p", entries)
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)


def test_arrays_are_aligned_and_do_not_overlap(tmp_path: Path) -> None:
    (entries,) = parameters.write(tmp_path / "p", [ARRAYS])
    end = 0
    for entry, array in zip(entries, write_and_read(tmp_path / "p", entries).values(), strict=True):
        assert entry.offset % ALIGNMENT == 0
        assert entry.offset >= end
        assert not array.size or array.ctypes.data % ALIGNMENT == 0
        assert array.flags.c_contiguous
        end = entry.offset + array.nbytes
    assert end == (tmp_path / "p").stat().st_size


def test_changes_never_reach_the_file(tmp_path: Path) -> None:
    (entries,) = parameters.write(tmp_path / "p", [ARRAYS])
    file_bytes = (tmp_path / "p").read_bytes()
    arrays = write_and_read(tmp_path / "p", entries)
    arrays["odd"][:] = 9
    assert (tmp_path / "p").read_bytes() == file_bytes
    np.testing.assert_array_equal(write_and_read(tmp_path / "p", entries)["odd"], ARRAYS["odd"])


def test_a_file_outlives_its_name(tmp_path: Path) -> None:
    """A bundle may be replaced while a pipeline still runs from it."""
    (entries,) = parameters.write(tmp_path / "p", [ARRAYS])
    arrays = write_and_read(tmp_path / "p", entries)
    (tmp_path / "p").unlink()
    np.testing.assert_array_equal(arrays["odd"], ARRAYS["odd"])


@pytest.mark.parametrize("arrays", [{}, {"none": np.zeros((0, 4), np.float32)}], ids=["no arrays", "an empty array"])
def test_an_empty_file(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    (entries,) = parameters.write(tmp_path / "p", [arrays])
    restored = write_and_read(tmp_path / "p", entries)
    assert {name: array.shape for name, array in restored.items()} == {
        name: array.shape for name, array in arrays.items()
    }


def test_arrays_that_are_the_same_are_written_once(tmp_path: Path) -> None:
    large = weights(100, 100)
    sets = parameters.share_arrays([{"a": large, "b": large.copy()}, {"c": large + 0, "d": large.T.copy()}])
    first, second = parameters.write(tmp_path / "p", sets)
    assert first[0].offset == first[1].offset == second[0].offset != second[1].offset
    assert (tmp_path / "p").stat().st_size < 2.1 * large.nbytes
    np.testing.assert_array_equal(write_and_read(tmp_path / "p", second)["d"], large.T)


def test_lifting_turns_large_constants_into_arguments(tmp_path: Path) -> None:
    constants = {
        "w": weights(4, 4, 3, 3),
        "b": weights(4),
        "large": weights(1, 1, 1, SMALL),
        "i": np.array([0, 1, 2, 3, 4, 5]),
    }
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Tile", "c reps", "t"),
        node("Gather", "t i", "g", axis=3),
        node("Concat", "g wide", "y", axis=3),
    ]
    constants |= {"reps": np.array([1, 1, 1, 2]), "wide": weights(1, 4, 6, 3)}
    del constants["large"]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    (part,) = extract.parts(graph, [])
    main = extract.module(part)["main"]
    function, arrays = parameters.lift(main)
    assert [array.shape for array in arrays.values()] == [(4, 4, 3, 3), (1, 4, 6, 3)], "also out of a tuple"
    assert len(function.params) == len(main.params) + len(arrays)
    assert [str(each.name) for each in function.params[1:]] == list(arrays)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays.values())
    np.testing.assert_array_equal(next(iter(arrays.values())), constants["w"])


def test_names_that_look_like_places_do_not_meet() -> None:
    """Argument 0.1 of operator 'a' and argument 1 of operator 'a.0' are two parameters."""
    x = relax.Var("x", relax.TensorType((32,), "float32"))
    first, second = (relax.const(np.full(32, value, np.float32)) for value in (1.0, 2.0))
    builder = relax.BlockBuilder()
    values = [relax.op.concat([x, first], 0), relax.op.add(x, second)]
    bindings = [
        relax.VarBinding(relax.DataflowVar(name, value.ty), value)
        for name, value in zip(("a", "a.0"), map(builder.normalize, values), strict=True)
    ]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], x)
    _, arrays = parameters.lift(relax.Function([x], body, x.ty))
    assert sorted(float(array[0]) for array in arrays.values()) == [1, 2]


def test_a_dtype_that_numpy_does_not_know_stays_in_the_code() -> None:
    x = relax.Var("x", relax.TensorType((32,), "bfloat16"))
    value = relax.BlockBuilder().normalize(relax.op.add(x, relax.const(np.ones(32, np.float32), "bfloat16")))
    bindings = [relax.VarBinding(relax.DataflowVar("y", value.ty), value)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], x)
    function, arrays = parameters.lift(relax.Function([x], body, x.ty))
    assert arrays == {}
    assert len(function.params) == 1
