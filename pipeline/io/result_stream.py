"""The verb stream: decoded results of a source's frames, in a loop."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import PipelineClosed
from pipeline.io.decoders.registry import candidates
from pipeline.io.planned_model import PlannedModel
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.result_reader import choose_card, make_reader, model_interface
from pipeline.io.sinks import registry as sinks_registry
from pipeline.io.sinks.base import Callback, Sink, SinkGroup
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources import registry as sources_registry
from pipeline.io.sources.base import FrameSource, SourceOptions
from pipeline.io.stream import POLICIES, FrameStream
from pipeline.scheduler.channel import Channel, EntryChannel
from pipeline.scheduler.statistics import Statistics
from pipeline.system.closable import Closable
from pipeline.workflow import load

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.options import PipelineKeywords

LINE = 2
"""Results of a recording that wait for the caller's loop, beside those in the pipeline."""


class ResultStream(Closable):
    """Iterates over the decoded frames of a source; see `pipeline.stream`.

    The source, the pipeline and the sinks work in threads of their own, and end with the loop, however that ends.

    Attributes
    ----------
    card : ModelCard
        Card of the model, with what was guessed.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        bundle: Bundle,
        source: str | Path | FrameSource,
        sinks: Sequence[str | Path | Sink],
        card: ModelCard | None,
        limit: int | None,
        options: PipelineKeywords,
    ) -> None:
        # 1. The model, as its card says.
        self.card = choose_card(bundle.plan, (card or ModelCard()).merge(bundle.card or ModelCard()))
        reader, preparation = make_reader(bundle.plan, self.card), self.card.preparation or Preparation()
        self._decoders = () if self.card.decoder else tuple(candidates(model_interface(bundle.plan, self.card)))
        self._stop, self._error = threading.Event(), None  # type: tuple[threading.Event, BaseException | None]
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)
        with contextlib.ExitStack() as stack:
            # 2. What frames come from and go to.
            if not isinstance(source, FrameSource):
                # Texts in a program are its author's own.
                options_of_source = SourceOptions(
                    bundle.plan.inputs,
                    preparation,
                    quantizations=bundle.plan.quantization,
                    pictures=bundle.pictures,
                    allow_commands=True,
                )
                source = sources_registry.open_source(str(source), options_of_source)
            stack.enter_context(source)
            prepared, geometry = prepare_bundle(bundle, source.pixels, preparation)
            texts = [str(sink) for sink in sinks if not isinstance(sink, Sink)]
            facts = {"decoded": reader is not None, "allow_commands": True}
            opened = [stack.enter_context(sink) for sink in sinks if isinstance(sink, Sink)]
            opened.append(
                stack.enter_context(sinks_registry.open_sinks(texts, prepared.plan.outputs, geometry, **facts))
            )
            # 3. The pipeline between them, and the line to the caller's loop.
            self._channel: Channel[StreamFrame] = _NewestChannel() if source.live else Channel(LINE)
            options = {"admission": POLICIES[source.live], **options}
            self._running = stack.enter_context(load.load(prepared, **options))
            self._stream = FrameStream(
                self._running,
                _StoppableSource(source, self._stop),
                SinkGroup([*opened, Callback(self._channel.put)]),
                limit=limit,
                reader=reader,
                geometry=geometry,
            )
            # Closed by the thread, or by `close` if that never began.
            self._stack = stack.pop_all()

    def __iter__(self) -> Iterator[StreamFrame]:
        """Yield the frames; raise the first error of the source, a frame or a sink."""
        if self._stop.is_set() or self._thread.ident is not None:
            raise PipelineClosed("a stream runs once; call pipeline.stream again")
        self._thread.start()
        try:
            while (result := self._channel.get()) is not None:
                yield replace(result, decoders=self._decoders)
            self._thread.join()
            error, self._error = self._error, None
            if error is not None:
                raise error
        finally:
            self.close()

    def statistics(self) -> Statistics:
        """Return the counters of the pipeline."""
        return self._running.statistics()

    def close(self) -> None:
        """End the stream, and complete the sinks."""
        self._stop.set()
        # Results are discarded from here on, so that nobody waits for a place.
        self._channel.close()
        if self._thread.ident is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            # The loop has ended before, or raises an error of its own.
            warnings.warn(f"the stream failed in the end: {error}", RuntimeWarning, stacklevel=2)
        self._stack.close()

    def _run(self) -> None:
        try:
            # Sinks hear of an error, too.
            with self._stack:
                self._stream.run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller's loop raises it
            self._error = error
        finally:
            self._channel.close()


class _NewestChannel(EntryChannel[StreamFrame]):
    """Channel of one item, in whose place a newer one comes."""

    def __init__(self) -> None:
        super().__init__(1, lambda: None)

    def put(self, item: StreamFrame) -> None:
        """Write without waiting, and take back what nobody has read."""
        for earlier in tuple(self.items):
            self.take_back(earlier)
        self.items.append(item)
        self.tokens.put(True)


class _StoppableSource(FrameSource):
    """Source that ends when its stream is closed."""

    def __init__(self, source: FrameSource, stop: threading.Event) -> None:
        self._source, self._stop = source, stop
        self.live, self.owns_memory, self.pixels = source.live, source.owns_memory, source.pixels

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames until the stop."""
        for frame in self._source:
            if self._stop.is_set():
                return
            yield frame


def stream(  # noqa: PLR0913 - all but the first two by keyword
    model: Bundle | str | Path,
    source: str | Path | FrameSource,
    *,
    sinks: Sequence[str | Path | Sink] = (),
    card: ModelCard | str | Path | None = None,
    board: str = "host",
    stages: int | str = "auto",
    limit: int | None = None,
    **options: Unpack[PipelineKeywords],
) -> ResultStream:
    """Stream a source through a model, and iterate over the decoded frames.

    Parameters
    ----------
    model : Bundle, str or Path
        A bundle or its folder; or a model file, built on its first use and kept in the cache, as by ``soc-pipeline
        run`` does.
    source : str, Path or FrameSource
        Source as for ``--source``: a camera, a video, photos or a stream of the network.
    sinks : sequence of (str, Path or Sink)
        Sinks as for ``--sink``, such as ``["out.mp4", "out.jsonl"]``.
    card : ModelCard, str or Path, optional
        What the model wants and gives, or a TOML file of it; its fields win over those of the model's own card.
    board, stages : str, int or str
        Board and stages of a model file, as for `pipeline.plan`.
    limit : int, optional
        Frames to read.
    **options
        Options of `pipeline.load`; ``admission`` is ``"latest"`` for a live source by default, whose newest result
        the loop gets, and ``"block"`` for a recording, of which it gets each.

    Returns
    -------
    ResultStream
        Iterator over frames with ``picture``, ``detections``, ``result`` and ``sequence``; a context manager.

    Raises
    ------
    PipelineError
        If the model, the source or a sink cannot be opened, or the card does not fit the model; in the loop, if a frame
        fails.
    """
    if isinstance(card, str | Path):
        from pipeline.core.card_file import read_card

        card = read_card(card)
    bundle = PlannedModel(model, {"board": board, "stages": stages}).load()
    return ResultStream(
        bundle=bundle,
        source=source,
        sinks=sinks,
        card=card,
        limit=limit,
        options=options,
    )
