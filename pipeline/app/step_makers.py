"""StepMaker: the steps of an application's nodes, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.app.app_checks import check_boxes
from pipeline.app.application import App
from pipeline.app.books import Books
from pipeline.app.events import check_publisher
from pipeline.app.model_program import ModelProgram
from pipeline.app.model_step import ModelStep
from pipeline.app.nodes import Function, Model, Node, SinkNode, Track, Trigger
from pipeline.app.permissions import Permissions
from pipeline.app.sink_step import SinkStep, sink_texts
from pipeline.app.steps import Condition, FunctionStep, Step
from pipeline.app.track_step import TrackStep
from pipeline.app.trigger_step import TriggerStep

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.io.sinks.base import Sink


class StepMaker:
    """Makes steps, with what a program has in place of files and addresses.

    Paths in the application are relative to `folder`. Bundles and sinks take the place of nodes' own, and functions
    that of the application's text for them. Books are those of crops, by model.
    """

    def __init__(  # noqa: PLR0913 - all but the first by keyword
        self,
        app: App,
        *,
        folder: Path = Path(),
        bundles: Mapping[str, Bundle] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        permissions: Permissions = Permissions(),  # noqa: B008 - it is immutable
    ) -> None:
        self._app, self._folder = app, folder
        self._bundles, self._functions, self._sinks = bundles or {}, functions or {}, sinks or {}
        self._permissions = permissions
        self.programs: dict[str, ModelProgram] = {}
        self.books = Books()

    def check(self) -> None:
        """Raise `PipelineError` for the first impossible node; build none."""
        for name, node in self._app.nodes.items():
            match node:
                case Function():
                    FunctionStep(node, self._functions, self._permissions)
                case Track():
                    TrackStep(name, node, None)
                case Trigger():
                    for text in node.to:
                        check_publisher(text, self._permissions)
                    self._permissions.check_sinks([node.clip.to] if node.clip else (), has_folder=False)
                case SinkNode() if name not in self._sinks:
                    self._permissions.check_sinks(sink_texts(node, self._app.stream_names[name]).values())
        for name, node in self._app.kinds(Model):
            self.programs[name] = ModelProgram(name, node, self._bundles.get(name), self._folder)
        decoders = {name: program.card.decoder for name, program in self.programs.items() if not program.gives_boxes}
        check_boxes(self._app, decoders)

    def make(self, name: str, node: Node) -> Step:
        """Return the step of a node, with all that it opens."""
        match node:
            case Model():
                self.programs[name].start()
                return ModelStep(name, node, self.programs[name], Condition.of(self._app, name, "where"), self.books)
            case Function():
                return FunctionStep(node, self._functions, self._permissions)
            case Track():
                return TrackStep(name, node, Condition.of(self._app, name, "where"))
            case Trigger():
                return TriggerStep(name, node, self._app, self._permissions)
            case SinkNode():
                streams = sorted(self._app.stream_names[name])
                return SinkStep(node, streams, self._permissions, self._sinks.get(name))
        raise AssertionError(node)
