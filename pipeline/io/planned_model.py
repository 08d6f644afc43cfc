"""PlannedModel: a model's bundle, described before it is built."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import BundleError
from pipeline.executor.bundle import Bundle
from pipeline.executor.bundle_description import describe_bundle
from pipeline.workflow import model_cache

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.split.graph import Graph


class PlannedModel:
    """A bundle, its folder, or a model file, which is planned once and built on its first use.

    `choices` are options of `pipeline.plan` for a model file.
    """

    def __init__(self, model: Bundle | str | Path, choices: Mapping[str, Any]) -> None:
        self._bundle, self._choices = model if isinstance(model, Bundle) else None, choices
        self._path = Path() if isinstance(model, Bundle) else Path(model)
        # As the command line has them, so that both share their bundles.
        defaults = {"board": "host", "stages": "auto"}
        self._changes = {name: value for name, value in choices.items() if value != defaults.get(name)}
        self._files = [Path(str(choices["board"]))] if Path(str(choices["board"])).is_file() else []
        self._planned: tuple[Mapping[str, str], Graph, Plan] | None = None

    def describe(self) -> Bundle:
        """Return the bundle without its code, possibly for another machine; a model is not built for it."""
        if self._bundle or not model_cache.is_model(self._path):
            return self._bundle or describe_bundle(self._path)
        if folder := model_cache.find(self._path, self._changes, self._files):
            # A damaged one in the cache will be built again.
            with contextlib.suppress(BundleError):
                return describe_bundle(folder)
        graph, plan = self._plan()
        return Bundle(plan, (), card=graph.card)

    def load(self) -> Bundle:
        """Load the bundle; that of a model is built on its first use, and kept in the cache."""
        if self._bundle or not model_cache.is_model(self._path):
            return self._bundle or Bundle.load(self._path)
        bundle = model_cache.load_or_build(self._path, Bundle.load, self._build, self._changes, self._files)[0]
        # The graph has all parameters once more.
        self._planned = None
        return bundle

    def _build(self) -> Bundle:
        from pipeline.workflow import build

        return build.build(*self._plan())

    def _plan(self) -> tuple[Graph, Plan]:
        # What plans is not part of the runtime's distribution.
        from pipeline.workflow import plan, read

        # Other models may be built for minutes between describing and building this one.
        if self._planned is None or self._planned[0] != model_cache.digests(self._path):
            graph = read.read(self._path)
            self._planned = model_cache.digests(self._path), graph, plan.plan(graph, **self._choices)
        return self._planned[1:]
