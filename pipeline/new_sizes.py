"""Builds for sizes that come up while a pipeline runs; each is made once, and kept on disk."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import msgspec

from pipeline.building import Options, compiled_at
from pipeline.errors import PipelineError
from pipeline.executor import cost_cache
from pipeline.executor.bundle import Bundle
from pipeline.files import cache_folder
from pipeline.plans import Plan
from pipeline.sizes import Build, Size
from pipeline.split.graph import Graph
from pipeline.split.open_model import OpenModel, at_other_size, content

FORMAT = 1


class Maker:
    """Makes the builds of a bundle for further sizes.

    Parameters
    ----------
    model : OpenModel
        What the bundle was built from.
    bundle : Bundle
    folder : Path, optional
        Where builds are kept; by default a folder of the user's, see `pipeline.files.cache_folder`.

    Raises
    ------
    PlanError
        If the bundle was built from another model.
    """

    def __init__(self, model: OpenModel, bundle: Bundle, folder: Path | None = None) -> None:
        self._model, self._bundle = model, bundle
        self._folder = cache_folder() if folder is None else folder
        model.size_of(bundle.plan)

    def __call__(self, size: Size) -> Build:
        """Return the build for `size`, from the disk or compiled.

        Raises
        ------
        ModelError, PlanError, BuildError
            If the model cannot be read, cut or compiled at that size.
        """
        graph = self._model.at(size)
        plan = at_other_size(self._bundle.plan, graph)
        path = None if self._folder is None else self._folder / f"builds-{FORMAT}" / self._key(graph, plan)
        if path is not None and (kept := _kept(path)) is not None:
            return Build(kept.plan, kept.codes)
        made = compiled_at(graph, plan, Options(lambda _: None, check=False, numerics=self._bundle.numerics))
        if path is not None:
            _keep(Bundle(made.plan, made.codes, numerics=self._bundle.numerics), path)
        return made

    def _key(self, graph: Graph, plan: Plan) -> str:
        """Return a name that says all that the code depends on."""
        devices = [cost_cache.place(plan.board.device(each.device), len(each.cores_of(0))) for each in plan.stages]
        facts = (content(graph), [each.operators for each in plan.stages], devices, self._bundle.numerics)
        return f"{hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]}.bundle"


def _kept(path: Path) -> Bundle | None:
    if not path.exists():
        return None
    try:
        return Bundle.load(path)
    except PipelineError as error:
        warnings.warn(f"a build that was kept cannot be used, and is made again: {error}", RuntimeWarning, stacklevel=2)
        return None


def _keep(bundle: Bundle, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        bundle.save(path)
    except (PipelineError, OSError) as error:
        warnings.warn(f"a build for a new size cannot be kept: {error}", RuntimeWarning, stacklevel=2)
