"""Bundle: the built stages with their plan; saved as one folder that can be copied anywhere.

``manifest.json`` names every other file with its size and SHA-256, and ``manifest.sha256`` has the manifest's own
(``sha256sum -c manifest.sha256`` checks it).  A library is a shared object, parameters are plain arrays.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.errors import BundleError, PlanError
from pipeline.executor import parameters, processor
from pipeline.executor.code import StageCode
from pipeline.executor.parameters import Entry
from pipeline.files import replace_folder
from pipeline.plans import Plan

FORMAT = 1
MANIFEST = "manifest.json"
CHECKSUM = "manifest.sha256"


class Part(msgspec.Struct, frozen=True):
    """One file of a bundle."""

    file: str
    nbytes: int
    sha256: str


class Stage(msgspec.Struct, frozen=True):
    """The files of one stage, and what its code needs to run."""

    library: Part
    parameters: Part
    entries: tuple[Entry, ...]
    machine: str
    features: tuple[str, ...]


class Manifest(msgspec.Struct, frozen=True):
    """What ``manifest.json`` holds; a stage without code is null."""

    format: int
    tvm: str
    plan: Plan
    stages: tuple[Stage | None, ...]


class _Format(msgspec.Struct):
    format: int = 0


class Bundle:
    """The built stages of a plan.

    Parameters
    ----------
    plan : Plan
    codes : sequence of StageCode or None
        In the plan's order; None for a stage on a device that needs no code.
    parity : Parity, optional
        What the check against the unsplit model found.
    """

    def __init__(self, plan: Plan, codes: Sequence[StageCode | None], parity: Any = None) -> None:
        self.plan = plan
        self.codes = tuple(codes)
        self.parity = parity

    def save(self, path: str | Path) -> None:
        """Write the bundle as the folder `path`; an older bundle there is replaced once the new one is complete.

        Raises
        ------
        BundleError
            If `path` is something else than a bundle, or cannot be written.
        BuildError
            If there is no linker on this machine.
        """
        target = Path(path).resolve()
        if target.exists() and not _is_bundle(target):
            raise BundleError(f"{str(path)!r} exists and is not a bundle; choose another name")
        if not target.parent.is_dir():
            raise BundleError(f"cannot save {str(path)!r}: there is no folder {str(target.parent)!r}")
        try:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
                fresh = Path(scratch) / "new"
                fresh.mkdir()
                _write(self, fresh)
                replace_folder(target, fresh, Path(scratch) / "old")
        except OSError as error:
            raise BundleError(f"cannot save {str(path)!r}: {error.strerror or error}") from error

    @staticmethod
    def load(path: str | Path) -> Bundle:
        """Verify and load the bundle at `path`.  No compiler is needed; nothing in it is unpickled.

        Raises
        ------
        BundleError
            If it is missing, damaged, of a newer format, or built for another kind of processor; the message
            names the part.
        """
        folder = Path(path)
        manifest = _manifest(folder)
        for stage, files in zip(manifest.plan.stages, manifest.stages, strict=True):
            if files is not None:
                _verify(folder, files.library)
                _verify(folder, files.parameters)
                if problem := processor.misfit(files.machine, files.features):
                    raise BundleError(f"{str(path)!r}: {stage.name} ({files.library.file}) {problem}")
        return Bundle(manifest.plan, [None if files is None else _code(folder, files) for files in manifest.stages])


def _is_bundle(folder: Path) -> bool:
    """Whether `folder` holds nothing but what a bundle has, so that replacing it destroys nothing else."""
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    return {MANIFEST, CHECKSUM} <= names and all(
        name in (MANIFEST, CHECKSUM) or name.endswith((".so", ".parameters")) for name in names
    )


def _write(bundle: Bundle, folder: Path) -> None:
    from pipeline.tvm_access import tvm

    stages = [None if code is None else _write_stage(code, folder, number) for number, code in enumerate(bundle.codes)]
    manifest = Manifest(FORMAT, str(tvm.__version__), bundle.plan, tuple(stages))
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    (folder / MANIFEST).write_bytes(data)
    (folder / CHECKSUM).write_text(_checksum_line(data))


def _checksum_line(manifest: bytes) -> str:
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n"


def _write_stage(code: StageCode, folder: Path, number: int) -> Stage:
    # Not the stage's own name, which need not be a legal file name.
    library, arrays = folder / f"stage{number}.so", folder / f"stage{number}.parameters"
    _export(code, library)
    entries = parameters.write(arrays, code.parameters)
    return Stage(_part(library), _part(arrays), tuple(entries), code.machine, code.features)


def _export(code: StageCode, library: Path) -> None:
    from pipeline.executor.link import link
    from pipeline.tvm_access import compiler_lock, quiet

    if code.library is not None:
        shutil.copyfile(code.library, library)
        return
    with compiler_lock, quiet():
        code.executable.export_library(str(library), fcompile=link)


def _part(path: Path) -> Part:
    with path.open("rb") as stream:
        digest = _sha256(stream)
    return Part(path.name, path.stat().st_size, digest)


def _sha256(stream: Any) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{str(path)!r}: cannot be read ({error.strerror}); copy the whole bundle again") from None


def _manifest(folder: Path) -> Manifest:
    if not folder.is_dir():
        what = "is not a bundle" if folder.exists() else "does not exist"
        raise BundleError(f"{str(folder)!r} {what}; make one with 'soc-pipeline build'")
    if not (folder / MANIFEST).exists():
        raise BundleError(f"{str(folder)!r} is not a bundle: it has no {MANIFEST}")
    data = _read(folder / MANIFEST)
    if _read(folder / CHECKSUM) != _checksum_line(data).encode():
        raise BundleError(
            f"{str(folder)!r}: {MANIFEST} does not have the checksum in {CHECKSUM}; copy the bundle again"
        )
    return _decoded(data, folder)


def _decoded(data: bytes, folder: Path) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version > FORMAT:
            raise BundleError(
                f"{str(folder)!r}: {MANIFEST} has format {version}, newer than {FORMAT}, which this version reads; "
                "upgrade soc-pipeline or build the bundle again"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
        if len(manifest.stages) != len(manifest.plan.stages):
            raise BundleError(
                f"{str(folder)!r}: {MANIFEST} lists {len(manifest.stages)} of {len(manifest.plan.stages)} stages"
            )
    except (msgspec.MsgspecError, PlanError) as error:
        raise BundleError(f"{str(folder)!r}: {MANIFEST} is not valid: {error}; build the bundle again") from None
    return manifest


def _verify(folder: Path, part: Part) -> None:
    path = folder / part.file
    if path.name != part.file or not path.is_file():
        raise BundleError(f"{str(folder)!r}: part {part.file!r} is missing; copy the whole bundle again")
    if (found := path.stat().st_size) != part.nbytes:
        raise BundleError(
            f"{str(folder)!r}: part {part.file!r} has {found} bytes instead of {part.nbytes}; copy it again"
        )
    if _part(path).sha256 != part.sha256:
        raise BundleError(
            f"{str(folder)!r}: part {part.file!r} has been changed (SHA-256 differs); copy or build it again"
        )


def _code(folder: Path, files: Stage) -> StageCode:
    library = (folder / files.library.file).resolve()
    arrays = parameters.read(folder / files.parameters.file, files.entries)
    return StageCode(
        lambda: _module(library),
        arrays,
        library=library,
        machine=files.machine,
        features=files.features,
    )


def _module(library: Path) -> Any:
    from pipeline.tvm_access import quiet, tvm

    with quiet():
        return tvm.runtime.load_module(str(library))
