"""Files and mappings of parameters."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import tvm

from pipeline.errors import ModelError
from pipeline.frontends.relay import params
from tests.support.relay_programs import random

ARRAYS = {
    "weight": random(2, 3),
    "whole": random(4, dtype="int8"),
    "one": np.array(7, np.int64),
    "flag": np.array([True]),
}


def assert_same(output: dict[str, np.ndarray]) -> None:
    assert output.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert output[name].dtype == array.dtype
        np.testing.assert_array_equal(output[name], array)


def test_a_file_of_tvm(tmp_path: Path) -> None:
    # A truth value has one bit in old files and eight in new ones.
    arrays = {name: tvm.runtime.tensor(array) for name, array in ARRAYS.items() if name != "flag"}
    (tmp_path / "m.params").write_bytes(tvm.runtime.save_param_dict(arrays))
    output = params.load_parameters(tmp_path / "m.params")
    assert_same({**output, "flag": ARRAYS["flag"]})


def test_a_file_of_numpy(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", **ARRAYS)  # type: ignore[arg-type]
    assert_same(params.load_parameters(str(tmp_path / "m.npz")))


def test_a_mapping() -> None:
    assert_same(params.load_parameters(ARRAYS))
    assert_same(params.load_parameters({**ARRAYS, "weight": tvm.runtime.tensor(ARRAYS["weight"])}))
    assert params.load_parameters({"list": [1.5, 2]})["list"].dtype == np.float64
    assert params.load_parameters(None) == {}


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 30, 60, 100])
def test_a_truncated_file(tmp_path: Path, cut: int) -> None:
    data = tvm.runtime.save_param_dict({"a": tvm.runtime.tensor(random(2, 3)), "b": tvm.runtime.tensor(random(3))})
    (tmp_path / "m.params").write_bytes(data[:cut])
    with pytest.raises(ModelError, match="holds no parameters"):
        params.load_parameters(tmp_path / "m.params")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, 2**60),
        struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 1, 2**62),
        struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 0, 2**40),
        b"PK\x03\x04 and no archive",
        b"some text that is no file of parameters",
    ],
)
def test_a_damaged_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.params").write_bytes(data)
    with pytest.raises(ModelError, match="holds no parameters"):
        params.load_parameters(tmp_path / "m.params")


def test_what_holds_no_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", names=np.array(["a"]))
    with pytest.raises(ModelError, match="parameter 'names' is of the dtype"):
        params.load_parameters(tmp_path / "m.npz")
    np.savez(tmp_path / "o.npz", things=np.array([None]))
    with pytest.raises(ModelError, match="holds no parameters"):
        params.load_parameters(tmp_path / "o.npz")
    with pytest.raises(ModelError, match=r"cannot read the parameters .*: No such file"):
        params.load_parameters(tmp_path / "nowhere.params")
