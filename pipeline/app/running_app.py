"""RunningApp: an application at work: streams in, results out, books that balance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from pipeline.app.app_frame import SKIPPED, AppFrame
from pipeline.app.application import App
from pipeline.app.books import Book, Books
from pipeline.app.feedback import Feedback
from pipeline.app.node_worker import NodeWorker
from pipeline.app.nodes import SinkNode, Track, Trigger
from pipeline.app.step_makers import StepMaker
from pipeline.app.steps import Condition, Step
from pipeline.app.stream_reader import StreamReader
from pipeline.errors import PipelineClosed
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.scheduler.pipeline import Pipeline
from pipeline.system.closable import Closable, call_all

END = ""
"""Name in place of a node's for the end of a frame."""


class RunningApp(Closable):
    """Runs an application; see `pipeline.load_app`.

    Each node has a thread. A frame goes to a node as soon as all that the node reads have finished with it. Frames of a
    stream keep their order at every node; a stream's frames in flight are bounded at its entrance, so that no line
    inside grows and none can wait for itself. A frame has exactly one end; the first failure of a node is its error.

    `books` are those of streams, and `crop_books` of models that run on crops.
    """

    def __init__(  # noqa: PLR0913 - all but the first three by keyword
        self,
        app: App,
        maker: StepMaker,
        open_stream: Callable[[str], FrameSource | None],
        *,
        on_error: str = "skip",
        on_frame: Callable[[AppFrame], object] = lambda _: None,
        limit: int | None = None,
    ) -> None:
        self.app, self._maker, self._on_error = app, maker, on_error
        self.books, self.crop_books = Books(), maker.books
        self._end_lock, self._stopped = threading.Lock(), threading.Event()
        self._error: BaseException | None = None
        self.closed, self._feedback = False, Feedback(app)
        self.first_failure: BaseException | None = None
        self._workers: dict[str, NodeWorker] = {}
        self._streams: dict[str, StreamReader] = {}
        with ExitStack() as opened:
            # 1. Nodes, whose steps may take long to make; those that were made are closed if one fails.
            opened.callback(self._close_workers)
            for name in app.order:
                self._workers[name] = self._make_worker(name)
            # Behind all nodes, so that frames of a stream end in order.
            self._observers = [on_frame]
            ending = _Ending(self.books, self._observers)
            self._workers[END] = NodeWorker(END, ending, None, lambda _: True, self._finish, skips_failed=False)
            # 2. Streams.
            plans = {name: running.plan for name, running in self.pipelines.items()}
            for name in app.streams:
                if (source := open_stream(name)) is not None:
                    opened.callback(source.close)
                self._streams[name] = StreamReader(name, self, source, app.room(name, plans), limit)
            opened.pop_all()
        self._plans = {name: self._count_reads(name) for name in app.streams}
        for worker in self._workers.values():
            worker.start()

    @property
    def pipelines(self) -> Mapping[str, Pipeline]:
        """Running pipelines of the models, by node; `Pipeline.swap` works on each."""
        return {name: program.running for name, program in self._maker.programs.items()}

    def run(self) -> Mapping[str, Book]:
        """Stream until all sources end; return the books by stream.

        Raises
        ------
        PipelineError
            The first error of a source, or of a frame with ``on_error="stop"``; sinks are completed before.
        """
        try:
            for stream in self._streams.values():
                stream.start()
            for stream in self._streams.values():
                stream.wait()
        except BaseException:
            self.stop()
            self.close()
            raise
        self.close()
        errors = [self._error, *(stream.error for stream in self._streams.values())]
        if error := next((error for error in errors if error is not None), None):
            raise error
        return self.statistics()

    def submit(self, stream: str, frame: SourceFrame) -> AppFrame:
        """Bring in a frame of a stream, waiting for a place; `PipelineClosed` if there will be none."""
        entered = self._streams[stream].submit(frame)
        if entered is None:
            raise AssertionError("a frame that waits for a place gets one")
        return entered

    def statistics(self) -> Mapping[str, Book]:
        """Return the books by stream."""
        empty = {name: Book() for name in self.app.streams}
        return {**empty, **self.books.snapshot()}

    def observe(self, observer: Callable[[AppFrame], object]) -> Callable[[], None]:
        """Call a function with each frame that ends, as `on_frame`; return one that stops it."""
        self._observers.append(observer)
        return partial(self._observers.remove, observer)

    def reset(self, stream: str) -> None:
        """Forget what nodes remember of a stream: tracks, conditions, states."""
        for worker in self._workers.values():
            worker.forget(stream)

    def stop(self, error: BaseException | None = None) -> None:
        """Read no more frames, and give up those inside."""
        with self._end_lock:
            self._error = self._error or error
        self._stopped.set()
        for stream in self._streams.values():
            stream.stop()

    def close(self) -> None:
        """Read no more frames, finish those inside, and complete the sinks."""
        if self.closed:
            return
        self.closed = True
        for stream in self._streams.values():
            stream.stop()
        for stream in self._streams.values():
            stream.wait_idle()
        self._close_workers()

    # What streams and workers call.

    def enter(self, stream: str, index: int, frame: SourceFrame) -> AppFrame:
        """Let a frame in: all nodes hear that its stream has come."""
        app_frame = AppFrame(stream, index, frame, self._plans[stream])
        self.books.note(stream, "taken")
        if self._stopped.is_set():
            app_frame.fail(PipelineClosed("the application was stopped"), "cancelled")
        for name in self._plans[stream]:
            self._arrive(name, app_frame)
        return app_frame

    def _arrive(self, name: str, frame: AppFrame) -> None:
        """Note that one more of what a node waits for has finished with a frame."""
        worker = self._workers[name]
        with worker.lock:
            frame.waits_for[name] -= 1
            if not frame.waits_for[name]:
                worker.put(frame)

    def _finish(self, name: str, frame: AppFrame, result: Any) -> None:
        """Note a node's result, and hand the frame on."""
        if self._on_error == "stop" and frame.error is not None and frame.end == "failed":
            self.stop(frame.error)
        if frame.end == "failed":
            self.first_failure = self.first_failure or frame.error
        if name == END:
            self._streams[frame.stream].leave()
            return
        if result is not SKIPPED:
            frame.results[name] = result
        self._feedback.put(name, frame)
        for reader in (*self.app.readers(name), END):
            if reader in frame.waits_for:
                self._arrive(reader, frame)

    def _make_worker(self, name: str) -> NodeWorker:
        node = self.app.nodes[name]
        step: Step = self._maker.make(name, node)
        # Sinks and triggers take all frames, with what is there of what they read; so do regions, which need no
        # detector where something is followed.
        takes_all = isinstance(node, SinkNode | Trigger) or (isinstance(node, Track) and bool(node.feedback))
        reads: Sequence[str] = () if takes_all else [read for read in node.reads if read in self.app.nodes]
        return NodeWorker(
            name,
            step,
            # A trigger's condition says when it fires, and not which frames it sees.
            None if isinstance(node, Trigger) else Condition.of(self.app, name, "when"),
            # A trigger lets through the frames on which it fires.
            lambda frame: all(frame.results.get(read, False) is not False for read in reads),
            self._finish,
            feedback=partial(self._feedback.take, name),
        )

    def _count_reads(self, stream: str) -> dict[str, int]:
        """Return how many of what it reads finish with a frame of a stream, for each node, and one for the stream."""
        names = [name for name in self.app.order if stream in self.app.stream_names[name]]
        counts = {name: 1 + sum(read in names for read in self.app.reads(name)) for name in names}
        return {**counts, END: 1 + len(names)}

    def _close_workers(self) -> None:
        # In order: each has handed on all that it had when the next one ends.
        try:
            call_all(worker.close for worker in self._workers.values())
        except BaseException as error:  # noqa: BLE001 - raised by `run`, behind that of a frame
            self._error = self._error or error


class _Ending(Step):
    """Notes the end of frames, and calls the program's own functions."""

    def __init__(self, books: Books, observers: Sequence[Callable[[AppFrame], object]]) -> None:
        self._books, self._observers = books, observers

    def compute(self, frame: AppFrame) -> None:
        """Note the end of a frame."""
        try:
            for observer in tuple(self._observers):
                observer(frame)
        except Exception as error:  # noqa: BLE001 - the frame's, if it has none yet
            frame.fail(error)
        self._books.note(frame.stream, frame.end)
