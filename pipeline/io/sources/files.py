"""Arrays and images from files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.npyio import NpzFile

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.uri import Uri
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput
from pipeline.system.files import check_regular
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.executor.stage_code import StageCode

Named = tuple[str, Mapping[str, np.ndarray]]

ARRAYS = (".npy", ".npz")
IMAGES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def find(paths: Sequence[Path]) -> list[Path]:
    """Return the files of `paths`, with folders' readable files by name.

    Raises `InputError` if a path does not exist, is a pipe or a device, a file's kind is unknown, or a folder has none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            # By name, since the order of a folder is that of its file system.
            readable_files = sorted(file for file in path.iterdir() if file.suffix.lower() in ARRAYS + IMAGES)
            if not readable_files:
                raise InputError(f"folder {str(path)!r} has no inputs; supported are {' '.join(ARRAYS + IMAGES)}")
            files += readable_files
        elif not path.exists():
            raise InputError(f"no input at {str(path)!r}")
        elif path.suffix.lower() not in ARRAYS + IMAGES:
            raise InputError(f"cannot read {str(path)!r}; supported are {' '.join(ARRAYS + IMAGES)}")
        else:
            files.append(path)
    try:
        for file in files:
            # Also those in folders: reading a pipe would wait until somebody writes to it.
            check_regular(file)
    except OSError as error:
        raise InputError(f"cannot read {error.filename!r}: {error.strerror}") from None
    return files


class Files(FrameSource):
    """Frames from arrays and images in order, out of files or folders of them; see `find`.

    Images are prepared, with the scales of the model's quantised tensors and the bundle's kernels for pictures; or left
    as they are, each with its `SourceFrame.pixels`, if `raw_pictures` is True. Raises `InputError` if there are none;
    while frames are read, also if a file is damaged or does not fit the model's inputs.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        paths: Sequence[Path],
        specs: Sequence[TensorSpec],
        preparation: Preparation | None = None,
        quantizations: Iterable[Quantization] = (),
        pictures: StageCode | None = None,
        *,
        raw_pictures: bool = False,
    ) -> None:
        self._files, self._specs, self._pictures, self._raw_pictures = find(paths), specs, pictures, raw_pictures
        self._preparation, self._quantizations = preparation or Preparation(), quantizations

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames, captured at their files' writing times; those of images with their pictures."""
        for path in self._files:
            # Recordings have no other time; several frames of one file share it.
            stamp = path.stat().st_mtime_ns
            if path.suffix.lower() in IMAGES:
                yield self._read_image(path, stamp)
                continue
            for name, inputs in _arrays(path, self._specs):
                yield SourceFrame(name, inputs, stamp)

    def _read_image(self, path: Path, stamp: int) -> SourceFrame:
        if self._raw_pictures:
            picture = read_picture(path)
            pixels = Pixels("rgb24", picture.shape[1], picture.shape[0])
            return SourceFrame(path.stem, picture, stamp, pixels=pixels)
        spec = _one_input(path, self._specs)
        picture_input = PictureInput(spec, self._preparation, self._quantizations, self._pictures)
        picture = read_picture(path)
        array, geometry = picture_input.prepare(picture)
        return SourceFrame(path.stem, {spec.name: array}, stamp, geometry=geometry, picture=picture)


def read_picture(path: Path) -> np.ndarray:
    """Read an image as uint8 [height, width, 3], upright as viewers show it.

    Raises `InputError` if it is damaged, or no image; `MissingExtra` if Pillow is not installed.
    """
    image = require("PIL.Image", "images", "reading images")
    operations = require("PIL.ImageOps", "images", "reading images")
    try:
        with image.open(path) as stored:
            upright = stored
            # Cameras store pictures as their sensor lies, and note which side was up.  Viewers show pictures with a
            # damaged note all the same.
            with contextlib.suppress(Exception):
                upright = operations.exif_transpose(stored)
            return np.asarray(upright.convert("RGB"))
    except Exception as error:  # noqa: BLE001 - damaged files make Pillow stumble in many ways
        raise InputError(f"{str(path)!r} is not a readable image: {error}") from None


def _one_input(path: Path, specs: Sequence[TensorSpec]) -> TensorSpec:
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise InputError(
            f"{str(path)!r} holds one array, but the model has the inputs {names}; give a .npz with these names"
        )
    return specs[0]


def _arrays(path: Path, specs: Sequence[TensorSpec]) -> Iterator[Named]:
    if path.suffix.lower() == ".npz":
        yield path.stem, _named_arrays(path)
        return
    spec = _one_input(path, specs)
    with _plain(path):
        # Stacked frames are read one by one as they are needed.
        array = np.lib.format.open_memmap(path, mode="r")
    # One axis more than the model takes is that of the frames.
    is_stack = array.ndim == len(spec.shape) + 1
    if is_stack and not len(array):
        raise InputError(f"{str(path)!r} holds no frame")
    for number, frame in enumerate(array if is_stack else [array]):
        yield f"{path.stem}-{number:06d}" if is_stack else path.stem, {spec.name: frame}


def _named_arrays(path: Path) -> dict[str, np.ndarray]:
    # Not by `np.load`, which would go by the content, and leave damaged files open.
    with _plain(path), path.open("rb") as stream, NpzFile(stream) as archive:
        return {name: archive[name] for name in archive.files}


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - damaged files make NumPy stumble in many ways
        # NumPy's own text would advise to unpickle the file.
        raise InputError(f"{str(path)!r} is not a valid {path.suffix} file of plain arrays") from None


def _open(uri: Uri, options: SourceOptions) -> Files:
    return Files(
        [uri.path],
        options.specs,
        options.preparation,
        options.quantizations,
        options.pictures,
        raw_pictures=options.raw_pictures,
    )


def _recognise(path: Path) -> bool:
    return path.is_dir() or (path.exists() and path.suffix.lower() in ARRAYS + IMAGES)


EXAMPLE = f"files or folders of {' '.join(ARRAYS + IMAGES)}"
KINDS = (SourceKind(("files",), _open, EXAMPLE, _recognise, is_file=True),)
