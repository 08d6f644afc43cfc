"""Arrays and images from files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.uri import Uri
from pipeline.picture.geometry import fit
from pipeline.picture.preparation import fill_input, prepared_layout
from pipeline.system.files import check_regular
from pipeline.system.optional import require

Named = tuple[str, Mapping[str, np.ndarray]]

ARRAYS = (".npy", ".npz")
IMAGES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def find(paths: Sequence[Path]) -> list[Path]:
    """Return the files of `paths`, with folders' readable files by name.

    Raises
    ------
    InputError
        If a path does not exist, is a pipe or a device, a file's kind is unknown, or a folder has none.
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
    """Frames from arrays and images in order.

    Parameters
    ----------
    paths : sequence of Path
        Files, or folders of them; see `find`.
    specs : sequence of TensorSpec
        The model's inputs.
    preparation : Preparation
        Preparation of images.

    Raises
    ------
    InputError
        If there are none; while frames are read, also if a file is damaged or does not fit the model's inputs.
    """

    def __init__(
        self, paths: Sequence[Path], specs: Sequence[TensorSpec], preparation: Preparation | None = None
    ) -> None:
        self._files, self._specs, self._preparation = find(paths), specs, preparation or Preparation()

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames, captured at their files' writing times."""
        for path in self._files:
            # Recordings have no other time; several frames of one file share it.
            stamp = path.stat().st_mtime_ns
            for name, inputs in _frames(path, self._specs, self._preparation):
                yield SourceFrame(name, inputs, stamp)


def _frames(path: Path, specs: Sequence[TensorSpec], preparation: Preparation) -> Iterator[Named]:
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
        yield path.stem, {spec.name: _image(path, spec, preparation)}
        return
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


def _image(path: Path, spec: TensorSpec, preparation: Preparation) -> np.ndarray:
    """Read an image as the input for `spec`."""
    layout = prepared_layout(preparation, spec)
    image = require("PIL.Image", "images", "reading images")
    try:
        with image.open(path) as picture:
            geometry = fit(preparation.resize, picture.size, (layout.width, layout.height))
            mode = "L" if layout.channels == 1 else "RGB"
            # Converted before it is resized: palettes cannot be interpolated.
            pixels = np.asarray(picture.convert(mode).resize((geometry.width, geometry.height)))
    except Exception as error:  # noqa: BLE001 - as above, of Pillow
        raise InputError(f"{str(path)!r} is not a readable image: {error}") from None
    planes = pixels.reshape(geometry.height, geometry.width, layout.channels).transpose(2, 0, 1)
    return fill_input(preparation, list(planes), spec, geometry)


def _open(uri: Uri, options: SourceOptions) -> Files:
    uri.check_options()
    return Files([uri.path], options.specs, options.preparation)


def _recognise(path: Path) -> bool:
    return path.is_dir() or (path.exists() and path.suffix.lower() in ARRAYS + IMAGES)


KINDS = (SourceKind(("files",), _open, f"files or folders of {' '.join(ARRAYS + IMAGES)}", _recognise),)
