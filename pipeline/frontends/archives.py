"""Archives: formats in a ZIP file, by the names of entries."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

_EXPORT = "export it: torch.export.save(torch.export.export(module.eval(), (example,)), 'model.pt2')"

_Names = list[str]


# By endings: torch.save puts all entries into a folder named after the file, which may be renamed later.
def _has(ending: str) -> Callable[[_Names], bool]:
    return lambda names: any(name.endswith(ending) for name in names)


# The order matters: a TorchScript archive has a pickle as well.
_REFUSED: tuple[tuple[Callable[[_Names], bool], str], ...] = (
    (
        lambda names: any("/aotinductor/" in name for name in names),
        f"is a package that AOTInductor compiled; {_EXPORT}",
    ),
    (_has("/constants.pkl"), f"is a TorchScript archive, which has no exported program; {_EXPORT}"),
    (_has("data.pkl"), f"is a checkpoint of torch.save, parameters or a pickled module, without a program; {_EXPORT}"),
    (_has(".npy"), "holds NumPy arrays"),
    (_has(".tflite"), "is a bundle of MediaPipe's (.task); unpack it as a ZIP archive, and give a .tflite file in it"),
    (_has("model.weights.h5"), "is a Keras model; convert it to TFLite or ONNX"),
)
CHECKPOINT = f"is an old checkpoint of torch.save, without a program; {_EXPORT}"
"""Remedy for a checkpoint without a program."""


def is_exported_program(path: Path) -> bool:
    """Check for an archive by ``torch.export.save`` at `path`."""
    names = _names(path)
    # Up to PyTorch 2.7 all lay in the top folder.
    return any(name.endswith(("/models/model.json", "serialized_exported_program.json")) for name in names) or (
        any("/models/" in name and name.endswith(".json") for name in names)
    )


def describe_refusal(path: Path) -> str:
    """Describe an unreadable archive."""
    names = _names(path)
    # An archive that was cut off has no directory, which ZIP keeps at its end.
    if not names:
        return "is a damaged ZIP archive"
    return next((text for fits, text in _REFUSED if fits(names)), "is a ZIP archive")


def _names(path: Path) -> _Names:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except Exception:  # noqa: BLE001 - a damaged directory also raises struct's, Unicode's and other errors
        return []
