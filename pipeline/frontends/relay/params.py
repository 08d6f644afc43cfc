"""Parameters of a Relay program: ``relay.save_param_dict``, NumPy archive, or mapping."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipeline.errors import ModelError
from pipeline.frontends.relay.arrays import ArrayReader
from pipeline.frontends.relay.scalars import DTYPES
from pipeline.system.files import check_regular
from pipeline.system.memory import map_file

Params: TypeAlias = Mapping[str, object] | str | Path

_MAGIC = 0xF7E58D4F05049CB7


def load_parameters(params: Params | None) -> dict[str, np.ndarray]:
    """Return the parameters by name.

    Raises `ModelError` if the file is missing, damaged or of another kind, or a value is no array of numbers.

    `params`: a mapping may hold whatever NumPy makes an array of, such as TVM's tensors.
    """
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return {str(name): _array(str(name), value) for name, value in params.items()}
    path = Path(params)
    try:
        check_regular(path)
        with path.open("rb") as stream:
            # Mapped, so that the parameters are in memory once, as the constants that they become.
            data = map_file(stream.fileno())
        return _archive(path) if data[:2] == b"PK" else _read_saved(data)
    except OSError as error:
        raise ModelError(f"cannot read the parameters {str(path)!r}: {error.strerror or error}") from None
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged headers of NumPy raise what Python's parser meets in them
        raise ModelError(
            f"{str(path)!r} holds no parameters: {error}; give a file of relay.save_param_dict, or a .npz file"
        ) from None


def _array(name: str, value: object) -> np.ndarray:
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if str(array.dtype) not in DTYPES:
        raise ModelError(f"parameter {name!r} is of the dtype {array.dtype}; supported are {', '.join(sorted(DTYPES))}")
    return array


def _archive(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return {name: _array(name, archive[name]) for name in archive.files}


def _read_saved(data: mmap.mmap) -> dict[str, np.ndarray]:
    reader = ArrayReader(data)
    magic, _, count = reader.unpack("<QQQ")
    if magic != _MAGIC:
        raise ValueError("it does not begin like them")
    names = [bytes(reader.take(reader.unpack("<Q")[0])).decode() for _ in range(_check_count(count, data))]
    (arrays,) = reader.unpack("<Q")
    if arrays != len(names):
        raise ValueError(f"{len(names)} names, but {arrays} arrays")
    return {name: reader.array() for name in names}


def _check_count(count: int, data: mmap.mmap) -> int:
    """Return a stated count, if the file has room for it."""
    if count > len(data) // 8:
        raise ValueError(f"{count} parameters do not fit into {len(data)} bytes")
    return count
