"""Verb export_stages: writes a plan's stages as models for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ArgumentError, BuildError, near

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan, StagePlan
    from pipeline.export.stage_export import StageExport
    from pipeline.frontends.formats import Format
    from pipeline.split.graph import Graph
    from pipeline.workflow.stage_files import StageManifest
    from pipeline.workflow.verify import Verification


LARGEST_BYTES = 2**31 - 1
"""Upper bound on a file's bytes: protobuf reads none of 2 GiB."""


@dataclass(frozen=True)
class ExportedStages:
    """Result of `export_stages`."""

    folder: Path
    manifest: StageManifest
    """Contents of its ``manifest.json``."""
    verification: Verification | None = None
    """Comparison of the files, run one after the other, with the model; None if they were not compared."""
    unverified: str = ""
    """Reason that they were not; empty if they were."""


def export_stages(  # noqa: PLR0913 - all but the first three by keyword
    graph: Graph,
    plan: Plan,
    folder: str | Path,
    *,
    format: str = "onnx",  # noqa: A002 - as NumPy and Matplotlib call it
    verify: bool | Iterable[Any] | None = None,
    tolerance: float | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> ExportedStages:
    """Write the stages as models, with their connections in ``manifest.json``.

    Parameters
    ----------
    graph : Graph
    plan : Plan
        Plan of this graph.
    folder : str or Path
        Folder to write to; stages that an earlier call has written there are replaced.
    format : str
        ``"onnx"``: the stage's part of an ONNX model, or a new model of its operators.  ``"tflite"``: its part of a
        TFLite model.  ``"source"``: ``"tflite"`` of a TFLite model, or else ``"onnx"``.
    verify : bool, or iterable of frames, optional
        Run the files one after the other, by ONNX Runtime or LiteRT, and compare what comes out with the model: on a
        random frame, or on these.  By default that is done where these libraries are installed.
    tolerance : float or str, optional
        Largest allowed error; as for `pipeline.verify`.
    seed : int
        Seed of the random frame.
    progress : callable, optional
        Function to call with the present activity.

    Raises
    ------
    PlanError
        If the plan belongs to another graph.
    BuildError
        If a stage has no form in this format, the model's file has changed since it was read, or the files compute
        something else than the model.
    InputError
        If the folder is something else, or cannot be written.
    MissingExtra
        If a library is not installed that is needed.
    """
    from pipeline.export.stage_export import StageExport
    from pipeline.split.earlier_plans import update_plan
    from pipeline.split.stage_parts import parts
    from pipeline.workflow import stage_files
    from pipeline.workflow.stage_check import StageCheck

    entry, source = _stage_format(graph, format), _stage_format(graph, "source")
    # By its name without the article and the kind of file.
    remedy = f"; format 'source' cuts {str(source).split()[1]} files" if entry is not source else ""
    check = StageCheck.of(graph, entry.required_library, verify=verify, tolerance=tolerance, seed=seed)
    stage_files.check_target(Path(folder).resolve())
    plan = update_plan(plan, graph)
    exports = [StageExport(graph, part) for part in parts(graph, plan)]
    result: Verification | str = check.unverified

    def write(number: int, stage: StagePlan) -> tuple[bytes, str, str]:
        progress(f"writing {stage.name}")
        try:
            return _content(exports[number], entry)
        except BuildError as error:
            raise BuildError(f"stage {stage.name!r}: {error}{remedy}") from error

    def compare(new_folder: Path, manifest: StageManifest) -> None:
        nonlocal result
        if not check.unverified:
            progress("comparing")
            result = check.run(new_folder, manifest)

    manifest = stage_files.write_folder(Path(folder), plan, write, compare, graph.card)
    if isinstance(result, str):
        return ExportedStages(Path(folder), manifest, unverified=result)
    return ExportedStages(Path(folder), manifest, result)


def _stage_format(graph: Graph, name: str) -> Format:
    """Return the format of the stages' files by name.

    ``"source"`` is the format of the graph's model if its parts are such files, else ONNX.
    """
    from pipeline import frontends
    from pipeline.frontends import formats

    entries = {entry.parts.removeprefix("."): entry for entry in formats.FORMATS if entry.parts}
    names = (*entries, "source")
    if name not in names:
        raise ArgumentError(f"stages have no format {name!r}; there are {', '.join(names)}{near(name, names)}")
    if name != "source":
        return entries[name]
    # First: what is gone has no format.
    kinds = {frontends.kind(source.model) for source in graph.sources if not source.has_changed}
    return next((entry for entry in kinds if entry.parts and len(kinds) == 1), formats.ONNX)


def _content(export: StageExport, entry: Format) -> tuple[bytes, str, str]:
    from pipeline.export.stage_export import EXTRACTED
    from pipeline.frontends import formats

    if entry is not formats.ONNX:
        return export.part(entry), entry.parts, EXTRACTED
    model, origin = export.onnx_and_origin(open_ends=True)
    if model.ByteSize() > LARGEST_BYTES:
        raise BuildError("it would be a file of 2 GiB or more, which nobody reads; cut it in two")
    return model.SerializeToString(), entry.parts, origin
