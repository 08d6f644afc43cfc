"""Session: one client of a server, from greeting to end."""

from __future__ import annotations

import concurrent.futures
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.errors import PipelineError, reason
from pipeline.remote import frame_memory, messages, requests, tensors
from pipeline.remote.device_threads import DeviceThread, ServedStage
from pipeline.remote.frame_memory import FrameMemory
from pipeline.remote.messages import ClientMessage
from pipeline.remote.offer import Offer, Refusal, ask_target
from pipeline.remote.rate_limit import RefusalLog
from pipeline.remote.served_bundle import BUNDLE, CHANGING, ServedBundle
from pipeline.remote.wire import LARGEST_GREETING, MOST_DISCARDED, MalformedMessage, Wire, blocks, is_loopback
from pipeline.system.memory import contents
from pipeline.system.threads import start_in_thread
from pipeline.system.version import VERSION

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

FAREWELL_S = 1.0
"""Seconds for a refused client to hear why."""

MOST_PROGRAMS = 1024
"""Upper bound on a session's open stages: one per frame size, or, while a model is measured, one per group of
operators."""


class SessionLimits(NamedTuple):
    """Time limits of clients in seconds."""

    greeting_s: float = 10.0
    """Seconds for a client's first message."""
    progress_s: float = 30.0
    """Seconds for the next step of a message that a client has begun, or of taking its results."""
    idle_s: float = 10.0
    """Seconds of silence after which they make room if somebody else comes and there is none."""


class ServerSession:
    """Serves one client in a separate thread; its input ends only this session.

    While the server waits for the client, `silent_since` is the time since which it does, by `time.monotonic`.
    """

    def __init__(self, wire: Wire[Any], offer: Offer, limits: SessionLimits, refusals: RefusalLog) -> None:
        self._wire, self._offer, self._limits, self._refusals = wire, offer, limits, refusals
        self.peer = wire.peer
        self._is_stranger = True
        self.silent_since: float | None = None
        self._beat_s = 1.0
        self._programs: list[ServedStage | ServedBundle] = []
        self._slots: dict[str, DeviceThread] = {}
        self._missing_files: requests.Needed = {}
        self._memory: FrameMemory | None = None

    def greet(self, admits: Callable[[str], bool] = lambda _: True) -> bool:
        """Authenticate the client; a refused one is told why and dropped."""
        return self._attempt(lambda: self._greet(admits))

    def serve(self) -> None:
        """Answer an admitted client until it leaves."""
        try:
            self._attempt(self._answer_all)
        finally:
            for thread in self._slots.values():
                self._offer.computing.leave(thread)
            if self._memory is not None:
                self._memory.close()
            self._wire.close()

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Return False if the session ended."""
        try:
            work()
        except OSError as error:
            logger.info("a session has ended: %s", error)
        except (MalformedMessage, PipelineError) as error:
            self._refusals.note(self.peer, str(error))
            self.refuse(str(error))
        except BaseException:
            self._wire.close()
            raise
        else:
            return True
        self._wire.close()
        return False

    def _answer_all(self) -> None:
        self._wire.send(self._offer.welcome())
        while True:
            # Only now may the server let it go for another one: it is owed no answer.
            self.silent_since = time.monotonic()
            self._wire.wait()
            self.silent_since = None
            # Before the first byte of a message there is no limit, see `Wire.wait`; from then on there is one.
            self._wire.limit(self._limits.progress_s)
            self._answer(self._wire.receive())

    def break_off(self) -> None:
        """Let the client go, from another thread."""
        self._wire.break_off()

    def refuse(
        self, reason: str, kind: type[messages.BusyAnswer | messages.RefusalAnswer] = messages.RefusalAnswer
    ) -> None:
        """Tell a client why it is refused, and drop it."""
        try:
            self._wire.limit(FAREWELL_S)
            # Below the limit of `messages.Text`, or the client would refuse the refusal.
            self._wire.send(kind(reason[:4000]))
            self._wire.finish(FAREWELL_S, MOST_DISCARDED if self._is_stranger else math.inf)
        except OSError:
            logger.info("a client did not wait to hear why it is refused")
        self._wire.close()

    def _greet(self, admits: Callable[[str], bool]) -> None:
        self._wire.limit(self._limits.greeting_s)
        # All that may come before the token: nobody else makes the server allocate, or decode, anything larger.
        self._wire.expect(messages.Greeting, LARGEST_GREETING)
        try:
            hello: messages.Greeting = self._wire.receive()
        except MalformedMessage as error:
            raise MalformedMessage(f"the first message is no greeting: {error}") from None
        # Told in words: with the next message one of the two would only find the other's malformed.
        if hello.protocol != messages.PROTOCOL:
            raise Refusal(
                f"the client (soc-pipeline {hello.version}) speaks protocol {hello.protocol}, "
                f"the server (soc-pipeline {VERSION}) protocol {messages.PROTOCOL}; "
                "install the same release on both machines"
            )
        if not admits(hello.token):
            raise Refusal("the token is missing or wrong; copy the server's into the folder that 'tls=' names")
        # Neither so often that it costs anything, nor so rarely that the client gives up.
        self._beat_s = min(max(hello.beat_s, 0.01), self._limits.progress_s)
        self._is_stranger = False
        self._wire.expect(ClientMessage)

    def _answer(self, message: ClientMessage) -> None:
        if isinstance(message, messages.FrameRequest):
            self._run(message)
        elif isinstance(message, messages.OpenRequest):
            self._open(message)
        elif isinstance(message, messages.UploadRequest):
            self._receive(message)
        elif isinstance(message, messages.TargetRequest):
            self._wire.send(messages.TargetAnswer(self._await_result(ask_target())))
        else:
            raise MalformedMessage(f"{type(message).__name__} may not come now")

    def _open(self, message: messages.OpenRequest) -> None:
        requests.check(message, self._offer)
        # Each holds its parameters in memory for as long as the session lasts.
        if len(self._programs) >= MOST_PROGRAMS:
            raise Refusal(f"one session may have {MOST_PROGRAMS} stages open, and this one has")
        program = self._bundle(message.stage) if message.device == BUNDLE else self._load(message)
        if program is None:
            return
        self._programs.append(program)
        self._wire.send(messages.OpenAnswer(len(self._programs) - 1, self._share_memory(message.stage)))

    def _bundle(self, stage: StagePlan) -> ServedBundle:
        bundle = self._offer.bundle
        if bundle is None:
            raise Refusal("this server runs no whole bundle; start it with 'serve --run BUNDLE'")
        if problem := bundle.misfit(stage):
            raise Refusal(f"the bundle that this server runs is another one: {problem}")
        return ServedBundle(bundle, stage)

    def _load(self, message: messages.OpenRequest) -> ServedStage | None:
        """Return a ready stage, or None after requesting missing files."""
        thread = self._slot(message.device)
        # Files are compared with their SHA-256, which may take a while.
        code = self._await_result(start_in_thread(lambda: requests.code(message, self._offer), "files"))
        if isinstance(code, dict):
            self._missing_files = code
            self._wire.send(messages.MissingFiles(tuple(code)))
            return None
        program = ServedStage(thread, message.stage, code)
        if error := self._await_end(program.load()).exception():
            raise Refusal(f"stage {message.stage.name!r} cannot be loaded: {_describe(error)}") from error
        return program

    def _share_memory(self, stage: StagePlan) -> messages.MemoryOffer | None:
        """Share frame memory with a local client, if a stage needs more."""
        request_bytes, answer_bytes = (frame_memory.area_bytes(specs) for specs in (stage.inputs, stage.outputs))
        offer = None if self._memory is None else self._memory.offer
        if offer is not None:
            request_bytes = max(request_bytes, offer.request_bytes)
            answer_bytes = max(answer_bytes, offer.answer_bytes)
            if (request_bytes, answer_bytes) == (offer.request_bytes, offer.answer_bytes):
                return None
        if not frame_memory.is_supported or max(request_bytes, answer_bytes) < frame_memory.SMALL:
            return None
        # Of another machine, it would only be memory that nobody uses.
        if not is_loopback(self.peer):
            return None
        try:
            memory = FrameMemory.create(request_bytes, answer_bytes)
        except OSError as error:
            logger.info("no memory is shared with a client: %s", error)
            return None
        if self._memory is not None:
            self._memory.close()
        self._memory = memory
        return memory.offer

    def _slot(self, kind: str) -> DeviceThread:
        """Return the session's slot for all stages on a device."""
        # Frames come one at a time: on several slots, they would gain nothing, and others lose their places.
        if kind not in self._slots:
            self._slots[kind] = self._offer.computing.enter(kind)
        return self._slots[kind]

    def _receive(self, message: messages.UploadRequest) -> None:
        part, suffix = self._missing_files.get(message.digest, (None, ""))
        # Only what this session was asked for: its size and SHA-256 have been checked by then.
        if part is None or part.nbytes != message.nbytes:
            raise MalformedMessage("an upload that nobody asked for")
        self._offer.store.receive(part, suffix, blocks(self._wire, part.nbytes))

    def _run(self, message: messages.FrameRequest) -> None:
        if not 0 <= message.program < len(self._programs):
            raise MalformedMessage("a frame for a stage that is not open")
        program = self._programs[message.program]
        first_version = program.version
        # Before memory is allocated for it: sizes come from the client.
        self._check(message, program)
        ran = self._await_end(program.run(self._inputs(message)))
        if error := ran.exception():  # the frame's own, and no reason to end the session
            self._wire.send(messages.FrameFailure(_describe(error)))
            return
        results, seconds = ran.result()
        # While versions change nobody knows which one the frame has met.
        version = program.version if program.version == first_version else CHANGING
        heads, memory = tensors.heads(results), self._memory if message.in_memory else None
        # A client that uses the memory reads its results there as well, if they have room.
        if memory is not None and frame_memory.put(memory.answers, results, heads):
            self._wire.send(messages.FrameAnswer(heads, seconds, in_memory=True, bundle_version=version))
            return
        outputs = [tensors.contiguous(array) for array in results]
        self._wire.send(
            messages.FrameAnswer(heads, seconds, bundle_version=version), [contents(array) for array in outputs]
        )

    def _inputs(self, message: messages.FrameRequest) -> list[np.ndarray]:
        if not message.in_memory:
            return tensors.receive(self._wire, message.tensors)
        if self._memory is None:
            raise MalformedMessage("a frame in memory that is not shared")
        try:
            return frame_memory.views(self._memory.requests, message.tensors)
        except ValueError as error:
            raise MalformedMessage(f"a frame of {error}") from None

    def _check(self, message: messages.FrameRequest, program: ServedStage | ServedBundle) -> None:
        specs, nbytes = program.stage.inputs, sum(tensor.nbytes for tensor in message.tensors)
        if len(message.tensors) != len(specs) or nbytes > self._offer.largest_frame:
            raise MalformedMessage(
                f"a frame of {len(message.tensors)} tensors and {nbytes} bytes for {len(specs)} inputs"
            )
        for tensor, spec in zip(message.tensors, specs, strict=True):
            if not tensor.fits(spec):
                raise MalformedMessage(f"a frame with {tensor.dtype}{list(tensor.shape)} as {spec}")

    def _await_result(self, work: Future[Result]) -> Result:
        return self._await_end(work).result()

    def _await_end(self, work: Future[Result]) -> Future[Result]:
        """Wait for work, with signs of life for the client."""
        try:
            # The beat tells the client that the machine is alive; sending it finds out whether the client still is.
            while not concurrent.futures.wait((work,), self._beat_s).done:
                self._wire.send(messages.Heartbeat())
        except BaseException:
            work.cancel()
            raise
        return work


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {reason(error)}"[:2000]
