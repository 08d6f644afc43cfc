"""Archives of exported programs, copied as plain tensors: no code runs.

PyTorch unpickles some members of such an archive without any restriction, evaluates its symbolic expressions, and
makes Python code of its names.  It never sees the file itself, but a copy of those members that a program needs:
raw tensors, pickles that its restricted reader accepts, and a description that was checked.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from pipeline.core.card_file import LARGEST
from pipeline.errors import ModelError, reason
from pipeline.frontends.torch.description import check_description

_PROGRAM = "models/model.json"
# What torch.export.load reads besides: the format, its version, and the order of bytes in tensors.
_LABELS = ("archive_format", "archive_version", "byteorder", ".data/version")
_TENSORS = {
    "data/weights/": ("model_weights_config.json", "weight_"),
    "data/constants/": ("model_constants_config.json", "tensor_"),
}
# A pickle that PyTorch loads without restrictions; an empty member makes it skip that.
_EXAMPLES = "data/sample_inputs/model.pt"
# Up to PyTorch 2.7 all lay in the top folder.
_OLD_PROGRAM = "serialized_exported_program.json"
_OLD_TENSORS = ("serialized_state_dict.pt", "serialized_constants.pt")
_OLD_EXAMPLES = "serialized_example_inputs.pt"
_EXTRA = ("/extra/", "extra_files/")
"""Folder of extra files in the archive's own one; up to PyTorch 2.7 at the top."""


def read_extra_files(path: Path) -> dict[str, str]:
    """Return small extra files of a valid archive as text, by name without ``.json``."""
    texts = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = next((info.filename.partition(folder)[2] for folder in _EXTRA if folder in info.filename), "")
            # A few bytes may claim to be gigabytes.
            if name and info.file_size <= LARGEST:
                with contextlib.suppress(zipfile.BadZipFile):
                    texts[name.removesuffix(".json")] = archive.read(info).decode(errors="replace")
    return texts


def open_program(path: Path) -> Any:
    """Return a file's ``ExportedProgram``, without running code.

    The program has lost its examples and extra files. Raises `ModelError` if this PyTorch cannot read it, or it holds
    other things than operators and plain tensors.
    """
    complaint = _Complaint()
    with warnings.catch_warnings(), complaint.catch():
        warnings.simplefilter("ignore")
        try:
            with plain_copy(path) as stream:
                return torch.export.load(stream)
        # Ours say already what is wrong; what follows is for PyTorch's own.
        except ModelError:
            raise
        except OSError as error:
            raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001 - PyTorch raises what its deserializers meet
            raise ModelError(
                f"{str(path)!r}: PyTorch {torch.__version__} cannot read this exported program: "
                f"{reason(complaint.error or error, line=0)}; export it again with this version"
            ) from None


class _Complaint(logging.Filter):
    """PyTorch's logged error. PyTorch later raises one without a reason."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Let no record through, and note its error."""
        if record.exc_info and record.exc_info[1]:
            self.error = record.exc_info[1]
        return False

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Take logged messages inside the block."""
        logger = logging.getLogger("torch.export")
        logger.addFilter(self)
        try:
            yield
        finally:
            logger.removeFilter(self)


@contextmanager
def plain_copy(path: Path) -> Iterator[IO[bytes]]:
    """Copy an archive without possible code into a temporary file.

    Raises `ModelError` if its program needs something else than plain tensors; `OSError` or `zipfile.BadZipFile` if it
    cannot be read.
    """
    # On disk: in memory, a large model's weights would be there twice while it is read.
    with tempfile.TemporaryFile() as stream:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as target:
            _PlainCopy(path, source, target).write()
        stream.seek(0)
        yield stream


class _PlainCopy:
    """An archive read, and its copy."""

    def __init__(self, path: Path, source: zipfile.ZipFile, target: zipfile.ZipFile) -> None:
        self._path, self._source, self._target = path, source, target
        self._members = {info.filename: info for info in source.infolist()}
        # Members that were compressed, or share their bytes, could make a few bytes as large as they like.
        is_uncompressed = all(info.compress_type == zipfile.ZIP_STORED for info in self._members.values())
        if not is_uncompressed or sum(info.file_size for info in self._members.values()) > path.stat().st_size:
            raise self._refusal("is compressed, which torch.export.save never does")
        # All members lie in one folder, whose name is that of the file when it was saved.
        program = next((name for name in self._members if name.endswith("/" + _PROGRAM)), "")
        self._root = program.removesuffix(_PROGRAM)

    def write(self) -> None:
        """Copy the needed parts of a program."""
        # These archives have no folders.
        if _OLD_PROGRAM in self._members:
            self._move("version")
            self._put(_OLD_PROGRAM, self._description(_OLD_PROGRAM))
            for name in _OLD_TENSORS:
                self._copy_pickle(name)
            # A program that is only imported needs no examples, and theirs is a pickle of any kind.
            self._put(_OLD_EXAMPLES, b"")
            return
        if not self._root:
            raise self._refusal("holds no program called 'model', as torch.export.save writes it")
        for name in _LABELS:
            if self._root + name in self._members:
                self._move(self._root + name)
        for folder, (configuration, prefix) in _TENSORS.items():
            self._tensors(self._root + folder, configuration, prefix)
        self._put(self._root + _PROGRAM, self._description(self._root + _PROGRAM))
        self._put(self._root + _EXAMPLES, b"")

    def _tensors(self, folder: str, configuration: str, prefix: str) -> None:
        """Copy the tensors of a folder; PyTorch 2.8 has one pickle."""
        if (single_pickle := folder + "model.pt") in self._members:
            self._copy_pickle(single_pickle)
            return
        configuration_content = self._json(folder + configuration)
        entries = configuration_content.get("config") if isinstance(configuration_content, dict) else None
        if not isinstance(entries, dict):
            raise self._refusal(f"describes no tensors in {folder + configuration!r}")
        for name, entry in entries.items():
            member = entry.get("path_name") if isinstance(entry, dict) else None
            # PyTorch goes by these prefixes and by "use_pickle" when it chooses between raw bytes and pickle.load.
            if not isinstance(member, str) or not member.startswith(prefix) or entry.get("use_pickle") is not False:
                raise self._refusal(f"holds {name!r} as a pickled object, never loaded; make it a plain tensor")
            # Tied weights are one member with several names.
            if folder + member not in self._target.namelist():
                self._move(folder + member)
        self._put(folder + configuration, json.dumps({"config": entries}).encode())

    def _copy_pickle(self, name: str) -> None:
        """Copy a pickle of nothing but tensors by name."""
        content = self._read(name)
        try:
            # PyTorch tries the same first, and only where that fails its unrestricted reader.
            tensors = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu") if content else {}
        except Exception:  # noqa: BLE001 - its restricted reader raises what each kind of damage happens to cause
            raise self._refusal(f"holds other things than tensors in {name!r}, which are never loaded") from None
        if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
            raise self._refusal(f"holds other things than tensors in {name!r}, which are never loaded")
        self._put(name, content)

    def _description(self, name: str) -> bytes:
        try:
            # Written anew from what was checked, so that nothing else in the text can mean anything.
            return json.dumps(check_description(self._json(name))).encode()
        except RecursionError:
            raise self._refusal(f"nests too deeply in {name!r}") from None
        except ModelError as error:
            raise self._refusal(str(error)) from None

    def _json(self, name: str) -> Any:
        content = self._read(name)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise self._refusal(f"holds no JSON in {name!r}") from None

    def _read(self, name: str) -> bytes:
        with self._open(name) as stream:
            return stream.read()

    def _put(self, name: str, content: bytes) -> None:
        self._target.writestr(name, content)

    def _move(self, name: str) -> None:
        with self._open(name) as stream, self._target.open(name, "w", force_zip64=True) as copy:
            # In pieces of a megabyte: a member may be gigabytes of weights.
            shutil.copyfileobj(stream, copy, 1 << 20)

    def _open(self, name: str) -> IO[bytes]:
        if name not in self._members:
            raise self._refusal(f"has no member {name!r}")
        return self._source.open(self._members[name])

    def _refusal(self, complaint: str) -> ModelError:
        return ModelError(f"{str(self._path)!r} {complaint}")
