"""Compile on demand: builds for new sizes while running, stored on disk."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import msgspec

from pipeline.core.plan.plan import Plan
from pipeline.core.plan.plan_commands import plan_commands
from pipeline.core.shapes import Build, Size
from pipeline.errors import PipelineError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.measure import cost_cache
from pipeline.split.graph import Graph
from pipeline.split.stage_parts import at_other_size
from pipeline.split.symbolic_model import OpenModel, content
from pipeline.system.file_store import FolderStore
from pipeline.system.files import cache_folder
from pipeline.system.leftovers import remove
from pipeline.workflow.bundle_builder import BuildOptions, build_stages
from pipeline.workflow.import_check import CheckOptions

# Part of the name of the folder: builds in another format stay unread there.
FORMAT = 2

MOST_BUILDS = 64
"""Builds that are kept; the least recently used makes room."""


class Maker:
    """Makes the builds of a bundle for further sizes, in a folder of the user's by default.

    Raises `PlanError` if the bundle was built from another model, or its plan has commands of a vendor's tool.
    """

    def __init__(self, model: OpenModel, bundle: Bundle, folder: Path | None = None) -> None:
        self._model, self._bundle = model, bundle
        root = cache_folder() if folder is None else folder
        self._store = None if root is None else FolderStore(root / f"builds-{FORMAT}", MOST_BUILDS)
        # Raises here what would otherwise come up with the first frame of a new size.
        model.size_of(bundle.plan)
        # Who loads a bundle does not expect that it runs commands, which may be anybody's.
        for command in plan_commands(bundle.plan):
            raise PlanError(
                f"a build for another size would run {command.text!r}, a command in the bundle's plan; build the "
                "bundle for all sizes that are needed, and load it without its model"
            )

    def __call__(self, size: Size) -> Build:
        """Return the build for `size`, stored or compiled.

        Raises `ModelError` or `PlanError` or `BuildError` if the model cannot be read, cut or compiled at that size.
        """
        graph = self._model.at(size)
        plan = at_other_size(self._bundle.plan, graph)
        store, key = self._store, self._key(graph, plan)
        if store is not None and (cached_build := _load_kept(store, key)) is not None:
            return Build(cached_build.plan, cached_build.codes)
        # Not compared with the unsplit model: the stages of the bundle were, and frames wait for this build.
        numerics = self._bundle.numerics
        options = BuildOptions(lambda _: None, CheckOptions(check=False), numerics=numerics)
        codes = build_stages(graph, plan, options).codes
        if store is not None:
            _keep(Bundle(plan, codes, numerics=numerics), store, key)
        return Build(plan, codes)

    def _key(self, graph: Graph, plan: Plan) -> str:
        """Return a name of everything behind the code."""
        devices = [
            cost_cache.describe_processor(plan.board.device(stage.device), len(stage.cores_of(0)))
            for stage in plan.units
        ]
        # Neither names nor times nor queues of the stages, on which no code depends.
        stages = [(unit.operators, unit.options) for unit in plan.units]
        facts = (content(graph), stages, devices, self._bundle.numerics)
        return f"{hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]}.bundle"


def _load_kept(store: FolderStore, key: str) -> Bundle | None:
    path = store.path(key)
    if not path.exists():
        return None
    store.touch(key)
    try:
        return Bundle.load(path)
    except PipelineError as error:
        warnings.warn(f"a build that was kept cannot be used, and is made again: {error}", RuntimeWarning, stacklevel=2)
        # Else it stays for good: a folder without a manifest counts as somebody else's, and is not replaced.
        remove(path)
        return None


def _keep(bundle: Bundle, store: FolderStore, key: str) -> None:
    try:
        store.root.mkdir(parents=True, exist_ok=True)
        bundle.save(store.path(key))
        store.make_room()
    except (PipelineError, OSError) as error:
        warnings.warn(f"a build for a new size cannot be kept: {error}", RuntimeWarning, stacklevel=2)
