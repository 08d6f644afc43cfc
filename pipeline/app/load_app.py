"""The verb load_app: an application, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.app.app_file import read_app
from pipeline.app.application import App
from pipeline.app.nodes import Stream
from pipeline.app.permissions import Permissions
from pipeline.app.running_app import RunningApp
from pipeline.app.step_makers import StepMaker
from pipeline.core import arguments
from pipeline.errors import AppError, near
from pipeline.io.sources.base import FrameSource, SourceOptions
from pipeline.io.sources.registry import check_source, open_source

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.executor.bundle import Bundle
    from pipeline.io.sinks.base import Sink


def load_app(  # noqa: PLR0913 - all but the first by keyword
    app: App | str | Path,
    *,
    sources: Mapping[str, FrameSource | None] | None = None,
    bundles: Mapping[str, Bundle] | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    sinks: Mapping[str, Sink] | None = None,
    on_error: str = "skip",
    on_frame: Callable[[AppFrame], object] = lambda _: None,
    limit: int | None = None,
    allow_commands: bool = True,
    allow_network: bool = True,
    notice: Callable[[str], None] = lambda _: None,
) -> RunningApp:
    """Load an application: its models run, and its streams wait for `RunningApp.run`.

    Parameters
    ----------
    app : App, str or Path
        An application, or its file; models in it are relative to the file, all else to the working folder.
    sources : mapping of str to FrameSource, optional
        Sources in place of the streams' own; None for a stream whose frames `RunningApp.submit` brings.
    bundles : mapping of str to Bundle, optional
        Bundles in place of the files of models, by node.
    functions : mapping of str to callable, optional
        Functions by the text that the application has for them.
    sinks : mapping of str to Sink, optional
        Sinks in place of the nodes' own.
    on_error : str
        ``"skip"``: a frame that fails ends alone. ``"stop"``: the first one ends the application.
    on_frame : callable, optional
        Function to call with each frame that has ended, in order, one after the other.
    limit : int, optional
        Frames of each stream.
    allow_commands, allow_network : bool
        False for an application of somebody else's: nothing in it starts commands, or sends events away.
    notice : callable
        Function to call with addresses that were opened, and events that were lost.

    Returns
    -------
    RunningApp
        A context manager.

    Raises
    ------
    AppError
        If the application is wrong.
    PipelineError
        If a model, source or sink cannot be opened.
    """
    arguments.choice("on_error", on_error, ("skip", "stop"))
    folder = Path() if isinstance(app, App) else Path(app).parent
    app = app if isinstance(app, App) else read_app(app)
    for given, known in ((sources, app.streams), (bundles, app.nodes), (sinks, app.nodes)):
        for name in given or ():
            if name not in known:
                raise AppError(f"the application has no {name!r}{near(name, tuple(known))}")
    permissions = Permissions(allow_commands, allow_network, notice)
    maker = StepMaker(app, folder=folder, bundles=bundles, functions=functions, sinks=sinks, permissions=permissions)

    check_app(app, maker, permissions, sources or ())

    def open_stream(name: str) -> FrameSource | None:
        if sources is not None and name in sources:
            return sources[name]
        return open_source(app.streams[name].source, _source_options(app.streams[name], permissions))

    return RunningApp(app, maker, open_stream, on_error=on_error, on_frame=on_frame, limit=limit)


def check_app(app: App, maker: StepMaker, permissions: Permissions, given: Container[str] = ()) -> None:
    """Raise `PipelineError` for what cannot be opened, as far as that is known before models are built.

    `given`: streams that need no source.
    """
    for name, stream in app.streams.items():
        if name not in given:
            options = _source_options(stream, permissions)
            kind, uri = check_source(stream.source, options)
            # A recording is opened for a moment; cameras and microphones are left alone.
            if not kind.live and ":" not in uri.location:
                open_source(stream.source, options).close()
    maker.check()


def _source_options(stream: Stream, permissions: Permissions) -> SourceOptions:
    return SourceOptions(
        raw_pictures=True,
        fps=stream.fps,
        speed=stream.speed,
        reconnect=stream.reconnect,
        notice=permissions.notice,
        allow_commands=permissions.commands,
    )
