"""Arrays and images from files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from pipeline.errors import InputError
from pipeline.extras import require
from pipeline.io.frame import Frame
from pipeline.io.prepare import Preparation
from pipeline.io.source import Source
from pipeline.plans import TensorSpec

Named = tuple[str, Mapping[str, np.ndarray]]

ARRAYS = (".npy", ".npz")
IMAGES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def find(paths: Sequence[Path]) -> list[Path]:
    """Return the files that `paths` stand for; a folder stands for the readable files in it, by name.

    Raises
    ------
    InputError
        If a path does not exist, a file's kind is unknown, or a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix.lower() in ARRAYS + IMAGES)
            if not inside:
                raise InputError(f"folder {str(path)!r} has no inputs; supported are {' '.join(ARRAYS + IMAGES)}")
            found += inside
        elif not path.exists():
            raise InputError(f"no input at {str(path)!r}")
        elif path.suffix.lower() not in ARRAYS + IMAGES:
            raise InputError(f"cannot read {str(path)!r}; supported are {' '.join(ARRAYS + IMAGES)}")
        else:
            found.append(path)
    return found


def frames(files: Sequence[Path], specs: Sequence[TensorSpec]) -> Iterator[Frame]:
    """Yield a name and the model's inputs for each frame in `files`, one after the other.

    Raises
    ------
    InputError
        If a file is damaged or does not fit the model's inputs.
    """
    for path in files:
        yield from _frames(path, specs)


def _frames(path: Path, specs: Sequence[TensorSpec]) -> Iterator[Frame]:
    if path.suffix.lower() == ".npz":
        yield path.stem, _named_arrays(path)
        return
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise InputError(
            f"{str(path)!r} holds one array, but the model has the inputs {names}; give a .npz with these names"
        )
    spec = specs[0]
    if path.suffix.lower() in IMAGES:
        yield path.stem, {spec.name: _image(path, spec)}
        return
    with _plain(path):
        # Stacked frames are read one by one as they are needed.
        array = np.lib.format.open_memmap(path, mode="r")
    stacked = array.ndim == len(spec.shape) + 1
    if stacked and not len(array):
        raise InputError(f"{str(path)!r} holds no frame")
    for number, frame in enumerate(array if stacked else [array]):
        yield f"{path.stem}-{number:06d}" if stacked else path.stem, {spec.name: frame}


def _named_arrays(path: Path) -> dict[str, np.ndarray]:
    # Not by `np.load`, which would go by the content, and leave damaged files open.
    with _plain(path), path.open("rb") as stream, NpzFile(stream) as stored:
        return {name: stored[name] for name in stored.files}


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - damaged files make NumPy stumble in many ways
        # NumPy's own text would advise to unpickle the file.
        raise InputError(f"{str(path)!r} is not a valid {path.suffix} file of plain arrays") from None


def _image(path: Path, spec: TensorSpec) -> np.ndarray:
    """Read an image as the batch of one that `spec` describes, [1, channels, height, width] with values from 0 to 1."""
    if (
        len(spec.shape) != 4
        or spec.shape[0] != 1
        or spec.shape[1] not in (1, 3)
        or spec.dtype not in ("float32", "uint8")
    ):
        raise InputError(
            f"images do not fit the model's input {spec}; it takes [1, 1 or 3, height, width]; give .npy files"
        )
    image = require("PIL.Image", "images", "reading images")
    try:
        with image.open(path) as picture:
            pixels = picture.convert("L" if spec.shape[1] == 1 else "RGB").resize(spec.shape[:1:-1])
    except Exception as error:  # noqa: BLE001 - as above, of Pillow
        raise InputError(f"{str(path)!r} is not a readable image: {error}") from None
    array = np.asarray(pixels).reshape(*spec.shape[2:], spec.shape[1]).transpose(2, 0, 1)[None]
    return np.ascontiguousarray(array) if spec.dtype == "uint8" else array.astype(np.float32) / np.float32(255)


