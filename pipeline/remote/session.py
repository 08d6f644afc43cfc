"""Session: one client of a server, from its greeting to its end."""

from __future__ import annotations

import concurrent.futures
import logging
from concurrent.futures import Future
from typing import TypeVar

from pipeline.errors import PipelineError
from pipeline.memory import contents
from pipeline.remote import messages, opening, target, tensors
from pipeline.remote.computing import Program, beside
from pipeline.remote.messages import Request
from pipeline.remote.offer import Offer, Refusal, installed
from pipeline.remote.wire import Malformed, Wire, blocks

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

GREETING_S = 10.0
"""A client has so long to say what it is."""

FAREWELL_S = 1.0
"""A client that is refused has so long to hear why."""

PROGRESS_S = 30.0
"""A client that has begun a message, or takes its results, and makes no progress for so long, is let go."""

MOST_PROGRAMS = 1024
"""Stages that one session may have open: one for each size of frames that they are built for; or, while a model is
measured, one for each of its groups of operators."""


class Session:
    """Serves one client, in a thread of its own; whatever the client sends ends at worst this session.

    Parameters
    ----------
    wire : Wire
        Connected to the client.
    offer : Offer
        What the client may use.
    """

    def __init__(self, wire: Wire[Request], offer: Offer) -> None:
        self._wire, self._offer = wire, offer
        self._beat_s = 1.0
        self._programs: list[Program] = []
        self._needed: opening.Needed = {}

    def serve(self) -> None:
        """Answer the client until it goes."""
        try:
            self._greet()
            while True:
                self._wire.wait()
                self._wire.limit(PROGRESS_S)
                self._answer(self._wire.receive())
        except OSError as error:
            logger.info("a session has ended: %s", error)
        except (Malformed, PipelineError) as error:
            logger.warning("a client is refused: %s", error)
            self.refuse(str(error))
        finally:
            self._wire.close()

    def refuse(self, reason: str) -> None:
        """Tell the client why there is no place for it, and let it go."""
        try:
            self._wire.limit(FAREWELL_S)
            self._wire.send(messages.Refused(reason[:4000]))
            self._wire.finish(FAREWELL_S)
        except OSError:
            logger.info("a client did not wait to hear why it is refused")
        self._wire.close()

    def _greet(self) -> None:
        self._wire.limit(GREETING_S)
        hello = self._wire.receive()
        if not isinstance(hello, messages.Hello):
            raise Malformed("the first message is no greeting")
        if hello.protocol != messages.PROTOCOL:
            raise Refusal(
                f"the client (soc-pipeline {hello.version}) speaks protocol {hello.protocol}, "
                f"the server (soc-pipeline {installed('soc-pipeline')}) protocol {messages.PROTOCOL}; "
                "install the same release on both machines"
            )
        self._beat_s = min(max(hello.beat_s, 0.01), PROGRESS_S)
        self._wire.send(self._offer.welcome())

    def _answer(self, message: Request) -> None:
        if isinstance(message, messages.Run):
            self._run(message)
        elif isinstance(message, messages.Open):
            self._open(message)
        elif isinstance(message, messages.Upload):
            self._receive(message)
        elif isinstance(message, messages.AskTarget):
            self._wire.send(messages.Target(self._waited(target.asked())))
        else:
            raise Malformed(f"{type(message).__name__} may not come now")

    def _open(self, message: messages.Open) -> None:
        opening.check(message, self._offer)
        thread = self._offer.computing.device(message.device)
        # Files are compared with their SHA-256, which may take a while.
        code = self._waited(beside(lambda: opening.code(message, self._offer), "files"))
        if isinstance(code, dict):
            self._needed = code
            self._wire.send(messages.Missing(tuple(code)))
            return
        if len(self._programs) >= MOST_PROGRAMS:
            raise Refusal(f"one session may have {MOST_PROGRAMS} stages open, and this one has")
        program = Program(thread, message.stage, code)
        if error := self._ended(program.load()).exception():
            raise Refusal(f"stage {message.stage.name!r} cannot be loaded: {_said(error)}") from error
        self._programs.append(program)
        self._wire.send(messages.Opened(len(self._programs) - 1))

    def _receive(self, message: messages.Upload) -> None:
        part, suffix = self._needed.get(message.digest, (None, ""))
        if part is None or part.nbytes != message.nbytes:
            raise Malformed("an upload that nobody asked for")
        self._offer.store.receive(part, suffix, blocks(self._wire, part.nbytes))

    def _run(self, message: messages.Run) -> None:
        if not 0 <= message.program < len(self._programs):
            raise Malformed("a frame for a stage that is not open")
        program = self._programs[message.program]
        self._check(message, program)
        ran = self._ended(program.run(tensors.receive(self._wire, message.tensors)))
        if error := ran.exception():  # the frame's own, and no reason to end the session
            self._wire.send(messages.Failed(_said(error)))
            return
        made, seconds = ran.result()
        outputs = [tensors.contiguous(array) for array in made]
        self._wire.send(messages.Ran(tensors.heads(outputs), seconds), [contents(array) for array in outputs])

    def _check(self, message: messages.Run, program: Program) -> None:
        specs, nbytes = program.stage.inputs, sum(tensor.nbytes for tensor in message.tensors)
        if len(message.tensors) != len(specs) or nbytes > self._offer.largest_frame:
            raise Malformed(f"a frame of {len(message.tensors)} tensors and {nbytes} bytes for {len(specs)} inputs")
        for tensor, spec in zip(message.tensors, specs, strict=True):
            if not tensor.fits(spec):
                raise Malformed(f"a frame with {tensor.dtype}{list(tensor.shape)} as {spec}")

    def _waited(self, work: Future[Result]) -> Result:
        return self._ended(work).result()

    def _ended(self, work: Future[Result]) -> Future[Result]:
        """Wait for something, and let the client know that it is worth waiting."""
        try:
            while not concurrent.futures.wait((work,), self._beat_s).done:
                self._wire.send(messages.Alive())
        except BaseException:
            work.cancel()
            raise
        return work


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:2000]
