"""Model cache: bundles of model files, built once and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.errors import BundleError, MissingExtra, ModelError, near
from pipeline.executor import host_target
from pipeline.executor.verified_file import describe_file
from pipeline.system.affinity import process_cores
from pipeline.system.distribution import IS_FULL, REMEDY, RUNTIME
from pipeline.system.file_store import FolderStore
from pipeline.system.files import CACHE_VARIABLE, cache_folder, check_regular, write_atomically
from pipeline.system.version import VERSION
from pipeline.tvm.library import tvm_version

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

SUFFIXES = (".json", ".onnx", ".pt", ".pt2", ".pth", ".relay", ".rly", ".tflite", ".txt", ".rknn", ".hef", ".engine")
"""Suffixes of files that are models; bundles are folders."""

MOST_BUNDLES = 16
"""Bundles of models in the cache; the least recently used makes room."""

FORMAT = 1
"""Part of the folder's name: bundles under keys of another form stay unread."""

_PACKAGE = Path(__file__).parents[1]
_BUNDLE, _FILES = "model.bundle", "files.json"


def is_model(path: str | Path) -> bool:
    """Test for a model, which has to be built, by the name of its file."""
    return Path(path).suffix.lower() in SUFFIXES and not Path(path).is_dir()


def load_or_build(  # noqa: PLR0913 - those of `find_or_build`, and how to load
    model: Path,
    load: Callable[[Path], Bundle],
    build: Callable[[], Bundle],
    options: Mapping[str, Any],
    files: Sequence[Path] = (),
    *,
    again: bool = False,
) -> tuple[Bundle, Path, bool]:
    """Load the bundle that `find_or_build` returns; a damaged one is built again."""
    folder, is_new = find_or_build(model, build, options, files, again=again)
    try:
        return load(folder), folder, is_new
    except BundleError:
        if is_new:
            raise
    folder, _ = find_or_build(model, build, options, files, again=True)
    return load(folder), folder, True


def find_or_build(
    model: Path,
    build: Callable[[], Bundle],
    options: Mapping[str, Any],
    files: Sequence[Path] = (),
    *,
    again: bool = False,
) -> tuple[Path, bool]:
    """Return the folder of a model's bundle, and True if it was built now.

    One process at a time builds; others that want the same wait for it. A bundle is another one for other options,
    which are plain values, and for other contents of the files that they name; `again` builds it, whatever is there.
    Raises `ModelError` if there is no such model, or it changes while it is built; `BundleError` if the bundle cannot
    be kept; `MissingExtra` if this installation only runs bundles.
    """
    check_model(model)
    store, key = _store(model), _key(model, options, files)
    if not again and (bundle := _find(store, key, model)):
        return bundle, False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(store.lock(key))
        except OSError as error:
            raise _refusal(model, store, error) from None
        # Another process may have built it meanwhile.
        if not again and (bundle := _find(store, key, model)):
            return bundle, False
        new = build()
        if _key(model, options, files) != key:
            raise ModelError(f"{str(model)!r} has changed while it was built; run the command again")
        try:
            return _keep(store, key, new, _companion_digests(model)), True
        except OSError as error:
            raise _refusal(model, store, error) from None


def find(model: Path, options: Mapping[str, Any], files: Sequence[Path] = ()) -> Path | None:
    """Return the folder of a model's cached bundle, or None.

    Raises as `find_or_build`.
    """
    check_model(model)
    return _find(_store(model), _key(model, options, files), model)


def check_model(model: Path) -> None:
    """Raise `ModelError` without a model's file, and `MissingExtra` where no model is read."""
    try:
        check_regular(model)
    except FileNotFoundError:
        names = [path.name for path in model.parent.iterdir()] if model.parent.is_dir() else []
        raise ModelError(f"no model at {str(model)!r}{near(model.name, names)}") from None
    # The second of names that none can be, with a zero.
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {str(model)!r}: {getattr(error, 'strerror', error)}") from None
    if not IS_FULL:
        raise MissingExtra(
            f"{str(model)!r} is a model, and {RUNTIME} only runs bundles: build one where the complete distribution "
            f"is ('soc-pipeline build {model.name} -o {model.stem}.bundle') and copy it here, or {REMEDY}"
        )


def _store(model: Path) -> FolderStore:
    root = cache_folder()
    if root is None:
        raise BundleError(f"there is no folder to keep the bundle of {str(model)!r} in; set {CACHE_VARIABLE}, or HOME")
    return FolderStore(root / f"models-{FORMAT}", MOST_BUNDLES)


def _refusal(model: Path, store: FolderStore, error: OSError) -> BundleError:
    return BundleError(
        f"cannot keep the bundle of {str(model)!r} in {str(store.root)!r}: {error.strerror or error}; set "
        f"{CACHE_VARIABLE} to a folder that you may write to"
    )


def _key(model: Path, options: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Return a name of all that a build depends on, but for the files that the model names."""
    facts = {
        "model": [str(model.absolute()), _digest(model)],
        "options": dict(options),
        "files": [_digest(path) for path in files],
        "versions": [VERSION, tvm_version(), _package_stamp()],
        # The host's board has these cores, and code is for this processor.
        "machine": [host_target.full_name(), sorted(host_target.flags()), list(process_cores())],
    }
    return hashlib.sha256(msgspec.json.encode(facts, enc_hook=str, order="sorted")).hexdigest()[:32]


def _package_stamp() -> float:
    """Return the time of this package's last change, which its version does not tell."""
    # An installation changes as one, and its record with it; where it is developed, there is none beside it.
    records = (path.stat().st_mtime for path in _PACKAGE.parent.glob("soc_stages*.dist-info/RECORD"))
    return next(records, None) or _source_stamp(str(_PACKAGE))


def _source_stamp(folder: str) -> float:
    """Return the time of the last change of a source below a folder."""
    newest = 0.0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime)
            # Not the compiled files, which the first start writes.
            elif entry.name != "__pycache__" and entry.is_dir():
                newest = max(newest, _source_stamp(entry.path))
    return newest


def _find(store: FolderStore, key: str, model: Path) -> Path | None:
    folder = store.path(key)
    try:
        digests = msgspec.json.decode((folder / _FILES).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return None
    if {name: _digest(model.parent / name) for name in digests} != digests:
        return None
    store.touch(key)
    return folder / _BUNDLE


def _keep(store: FolderStore, key: str, bundle: Bundle, digests: Mapping[str, str]) -> Path:
    folder = store.path(key)
    folder.mkdir(exist_ok=True)
    bundle.save(folder / _BUNDLE)
    # Last: with it the folder counts as complete.
    write_atomically(folder / _FILES, msgspec.json.encode(digests))
    store.touch(key)
    store.make_room()
    return folder / _BUNDLE


def digests(model: Path) -> dict[str, str]:
    """Return digests of a model and its companion files, also absent ones."""
    return {model.name: _digest(model), **_companion_digests(model)}


def _companion_digests(model: Path) -> dict[str, str]:
    card = model.with_suffix(".toml")
    # Not the model, whose digest is part of the key.
    paths = [card, model.with_suffix(".modelinfo"), Path(f"{model}.modelinfo")]
    # Names of classes are in a file of their own; or in the card as a list, which is no path.
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        paths.append(model.parent / msgspec.toml.decode(card.read_bytes()).get("labels", ""))
    if model.suffix.lower() == ".onnx":
        from pipeline.frontends.compiled.model_files import context_files
        from pipeline.frontends.onnx.external_data import data_files

        paths += [*data_files(model), *context_files(model)]
    return {os.path.relpath(path, model.parent): _digest(path) for path in paths}


def _digest(path: Path) -> str:
    """Return a file's SHA-256; empty if there is none."""
    try:
        check_regular(path)
        return describe_file(path).sha256
    except OSError:
        return ""
