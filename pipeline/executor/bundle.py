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

from pipeline.errors import BundleError, PlanError
from pipeline.executor import devices, manifest, parameters, processor
from pipeline.executor.code import StageCode, Stored
from pipeline.executor.manifest import CHECKSUM, FORMAT, MANIFEST, Manifest, OtherBuild, Stage
from pipeline.executor.numerics import EXACT, Numerics
from pipeline.files import replace_folder
from pipeline.plans import Plan
from pipeline.python_stages import with_stage
from pipeline.sizes import Build, OpenShapes


class Bundle:
    """The built stages of a plan.

    Parameters
    ----------
    plan : Plan
    codes : sequence
        What each stage's device loads, in the plan's order: a `StageCode`, a function, or None where it needs no code.
    parity : Parity, optional
        What the check against the unsplit model found.
    general : sequence of StageGeneral
        Of a bundle that was just built: for each stage with code, the operators that have no kernel of their own, and
        their share of its time.
    numerics : Numerics
        What was done to the model's arithmetic.
    shapes : OpenShapes, optional
        What varies in the shapes of the inputs.
    more : sequence of Build
        The stages for frames of other sizes than the plan's.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        plan: Plan,
        codes: Sequence[Any],
        parity: Any = None,
        general: Sequence[Any] = (),
        *,
        numerics: Numerics = EXACT,
        shapes: OpenShapes | None = None,
        more: Sequence[Build] = (),
    ) -> None:
        self.plan = plan
        self.codes = tuple(codes)
        self.parity = parity
        self.general = tuple(general)
        self.numerics, self.shapes, self.more = numerics, shapes, tuple(more)

    @property
    def builds(self) -> tuple[Build, ...]:
        """The stages for each size, that of the plan first."""
        return (Build(self.plan, self.codes), *self.more)

    def with_stage(self, function: Callable[..., Any], **options: Any) -> Bundle:
        """Return a bundle with one more stage, which calls a Python function; it can be run, but not saved.

        Parameters
        ----------
        function : callable
        **options
            As for `pipeline.python_stages.with_stage`: ``inputs``, ``outputs``, ``name`` and others.
        """
        if self.shapes is not None:
            raise PlanError(
                "a function cannot be a stage of a bundle for several sizes; call it on the frames before they are "
                "submitted, or build the bundle for one size"
            )
        plan, codes = with_stage(self.plan, self.codes, function, **options)
        return Bundle(plan, codes, self.parity, self.general, numerics=self.numerics)

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
        for file in found.files.values():
            manifest.verify(folder, file)
        for stage, files in found.pairs:
            if files is None or devices.elsewhere(found.plan.board.device(stage.device)):
                continue  # whose machine looks for itself
            if problem := processor.misfit(files.machine, files.features):
                raise BundleError(f"{str(path)!r}: {stage.name} ({files.library.file}) {problem}")
        more = [Build(each.plan, _codes(folder, each.stages), each.symbolic) for each in found.more]
        codes = _codes(folder, found.stages)
        return Bundle(found.plan, codes, numerics=found.numerics, shapes=found.shapes, more=more)


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
    written = [
        _write_stage([build.codes[number] for build in bundle.builds], folder, number)
        for number in range(len(bundle.codes))
    ]
    first, *others = zip(*written, strict=True)
    more = [OtherBuild(each.plan, stages, each.symbolic) for each, stages in zip(bundle.more, others, strict=True)]
    facts = Manifest(FORMAT, str(tvm.__version__), bundle.plan, first, bundle.numerics, bundle.shapes, tuple(more))
    manifest.write(folder, facts)


def _write_stage(codes: Sequence[StageCode | None], folder: Path, number: int) -> list[Stage | None]:
    """Write one stage's code for each size; parameters that are the same for several are written once."""
    built = [code for code in codes if code is not None]
    if not built:
        return [None] * len(codes)
    # Not the stage's own name, which need not be a legal file name.
    arrays = folder / f"stage{number}.parameters"
    entries = parameters.write(arrays, parameters.shared([code.parameters for code in built]))
    part, stages = manifest.part(arrays), []
    for size, (code, own) in enumerate(zip(built, entries, strict=True)):
        library = folder / (f"stage{number}.{size}.so" if size else f"stage{number}.so")
        export(code, library)
        stages.append(Stage(manifest.part(library), part, tuple(own), code.machine, code.features))
    rest = iter(stages)
    return [None if code is None else next(rest) for code in codes]


def export(code: StageCode, library: Path) -> None:
    """Write a stage's shared library.

    Raises
    ------
    BuildError
        If it has just been compiled, and there is no linker on this machine.
    """
    from pipeline.executor.link import link
    from pipeline.tvm_access import compiler_lock, quiet

    if code.library is not None:
        shutil.copyfile(code.library, library)
        return
    with compiler_lock, quiet():
        code.executable.export_library(str(library), fcompile=functools.partial(link, built_for=code.machine))


def _codes(folder: Path, stages: Sequence[Stage | None]) -> tuple[StageCode | None, ...]:
    return tuple(None if files is None else _code(folder, files) for files in stages)


def _code(folder: Path, files: Stage) -> StageCode:
    library, arrays = ((folder / part.file).resolve() for part in (files.library, files.parameters))
    return StageCode(
        lambda: module(library),
        parameters.read(arrays, files.entries),
        library=library,
        stored=Stored(arrays, files.entries),
        machine=files.machine,
        features=files.features,
    )


def module(library: Path) -> Any:
    """Return the TVM module of a shared library."""
    from pipeline.tvm_access import quiet, tvm

    with quiet():
        return tvm.runtime.load_module(str(library))
