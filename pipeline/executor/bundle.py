"""Bundle: the built stages with their plan; saved as one folder that can be copied anywhere.

``manifest.json`` names every other file with its size and SHA-256, and ``manifest.sha256`` has the manifest's own
(``sha256sum -c manifest.sha256`` checks it).  A library is a shared object, parameters are plain arrays.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import BundleError
from pipeline.executor import manifest, parameters, processor
from pipeline.executor.code import StageCode
from pipeline.executor.manifest import CHECKSUM, FORMAT, MANIFEST, Manifest, Stage
from pipeline.files import replace_folder
from pipeline.plans import Plan
from pipeline.python_stages import with_stage


class Bundle:
    """The built stages of a plan.

    Parameters
    ----------
    plan : Plan
    codes : sequence of StageCode or None
        In the plan's order; None for a stage on a device that needs no code.
    parity : Parity, optional
        What the check against the unsplit model found.
    general : sequence of StageGeneral
        Of a bundle that was just built: for each stage with code, the operators that have no kernel of their own, and
        their share of its time.
    """

    def __init__(
        self, plan: Plan, codes: Sequence[StageCode | None], parity: Any = None, general: Sequence[Any] = ()
    ) -> None:
        self.plan = plan
        self.codes = tuple(codes)
        self.parity = parity
        self.general = tuple(general)

    def with_stage(self, function: Callable[..., Any], **options: Any) -> Bundle:
        """Return a bundle with one more stage, which calls a Python function; it can be run, but not saved.

        Parameters
        ----------
        function : callable
        **options
            As for `pipeline.python_stages.with_stage`: ``inputs``, ``outputs``, ``name`` and others.
        """
        return Bundle(*with_stage(self.plan, self.codes, function, **options), self.parity, self.general)

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
        found = manifest.read(folder)
        for stage, files in zip(found.plan.stages, found.stages, strict=True):
            if files is not None:
                manifest.verify(folder, files.library)
                manifest.verify(folder, files.parameters)
                if problem := processor.misfit(files.machine, files.features):
                    raise BundleError(f"{str(path)!r}: {stage.name} ({files.library.file}) {problem}")
        return Bundle(found.plan, [None if files is None else _code(folder, files) for files in found.stages])


def _is_bundle(folder: Path) -> bool:
    """Whether `folder` holds nothing but what a bundle has, so that replacing it destroys nothing else."""
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    return {MANIFEST, CHECKSUM} <= names and all(
        name in (MANIFEST, CHECKSUM) or name.endswith((".so", ".parameters")) for name in names
    )


def _write(bundle: Bundle, folder: Path) -> None:
    from pipeline.tvm_access import tvm

    for stage, code in zip(bundle.plan.stages, bundle.codes, strict=True):
        if code is not None and not isinstance(code, StageCode):
            raise BundleError(
                f"stage {stage.name!r} is a Python function, which a bundle does not hold; save the bundle without it, "
                "and add the stage after loading"
            )
    stages = [None if code is None else _write_stage(code, folder, number) for number, code in enumerate(bundle.codes)]
    manifest.write(folder, Manifest(FORMAT, str(tvm.__version__), bundle.plan, tuple(stages)))


def _write_stage(code: StageCode, folder: Path, number: int) -> Stage:
    # Not the stage's own name, which need not be a legal file name.
    library, arrays = folder / f"stage{number}.so", folder / f"stage{number}.parameters"
    _export(code, library)
    entries = parameters.write(arrays, code.parameters)
    return Stage(manifest.part(library), manifest.part(arrays), tuple(entries), code.machine, code.features)


def _export(code: StageCode, library: Path) -> None:
    from pipeline.executor.link import link
    from pipeline.tvm_access import compiler_lock, quiet

    if code.library is not None:
        shutil.copyfile(code.library, library)
        return
    with compiler_lock, quiet():
        code.executable.export_library(str(library), fcompile=functools.partial(link, built_for=code.machine))


def _code(folder: Path, files: Stage) -> StageCode:
    library = (folder / files.library.file).resolve()
    arrays = parameters.read((folder / files.parameters.file).resolve(), files.entries)
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
