"""Connection: the client's end of one server session."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.core.board.device_kinds import device_kind
from pipeline.core.plan.plan import StagePlan
from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost, RemoteError
from pipeline.remote import frame_memory, messages, tensors
from pipeline.remote.frame_memory import FrameMemory
from pipeline.remote.messages import ServerMessage
from pipeline.remote.served_bundle import BUNDLE, BundleVersion
from pipeline.remote.stage_package import StagePackage, pack_stage
from pipeline.remote.tls import ClientTls, describe_error
from pipeline.remote.wire import MalformedMessage, Wire, closing_on_error
from pipeline.system import memory
from pipeline.system.memory import contents
from pipeline.system.version import VERSION
from pipeline.tvm.library import tvm_version

logger = logging.getLogger(__name__)
Kind = TypeVar("Kind")

OPENING_S = 600.0
"""Time limit of a server's loading in seconds, regardless of signs of life."""


class ServerBusy(DeviceLost):
    """Raised when a server is full at the moment; retrying may help."""


class ServerRefusal(DeviceLost):
    """Raised when a server refuses a request; retrying does not help."""


class Connection:
    """Session with a server from construction on, for one thread.

    For the device ``bundle``, `version` is the checksum of the bundle's manifest that the last frame met. Raises
    `DeviceLost` if the server cannot be reached, refuses, gives no sign of life for the address's `timeout`, or is
    gone. The connection is of no use then.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._memory: FrameMemory | None = None
        tls = ClientTls(Path(address.tls).expanduser()) if address.tls else None
        try:
            stream_socket = socket.create_connection((address.host, address.port), timeout=address.timeout)
            if tls is not None:
                with closing_on_error(stream_socket):
                    stream_socket = tls.connect(stream_socket, address.host)
        except OSError as error:
            raise self._error(error) from error
        self._wire: Wire[ServerMessage] = Wire(stream_socket, ServerMessage)
        with self._translate_errors():
            # For each message, and so for each sign of life: a stage may compute for longer, while the server says so.
            self._wire.limit(address.timeout)
            token = tls.token if tls else ""
            self._wire.send(messages.Greeting(messages.PROTOCOL, VERSION, address.timeout / 4, token))
            self.welcome = self._answer(messages.Welcome)
        self.version = self.welcome.bundle_version if address.device == BUNDLE else ""

    def target(self) -> dict[str, object]:
        """Return TVM's description of the server's processor."""
        with self._translate_errors():
            self._wire.send(messages.TargetRequest())
            return self._answer(messages.TargetAnswer).description

    def open(self, stage: StagePlan, code: Any) -> int:
        """Load a stage on the server, with its missing files; return its number."""
        is_elsewhere = code is None or isinstance(code, BundleVersion)
        return self.open_package(stage, None if is_elsewhere else pack_stage(code.for_processor(self.welcome.core)))

    def open_package(self, stage: StagePlan, package: StagePackage | None, *, built_with: str = "") -> int:
        """Open a packed stage, built with a TVM release (default: the local one)."""
        built_with = built_with or tvm_version()
        code, signed = (None, None) if package is None else (package.stage, package.signed)
        request = messages.OpenRequest(self.address.device, stage, code, built_with, *(signed or ()))
        with self._translate_errors():
            self._wire.send(request)
            message = self._message()
            # The files go only where they are not yet: by checksum, once for all clients and sessions.
            if package is not None and isinstance(message, messages.MissingFiles):
                self._upload(package, message)
                self._wire.send(request)
                message = self._message()
            answer = self._expect(message, messages.OpenAnswer)
            if answer.memory is not None:
                self._drop_memory()
                self._memory = FrameMemory.attach(answer.memory)
            return answer.program

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one frame through an opened stage.

        Raises `RemoteError` if the stage fails on it; the connection remains of use.
        """
        return self.run_timed(program, stage, arrays)[0]

    def run_timed(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
        """Run one frame like `run`, with the server device's seconds."""
        inputs = [tensors.contiguous(array) for array in arrays]
        with self._translate_errors():
            self._send_frame(program, inputs)
            message = self._message(self.address.limit)
            if isinstance(message, messages.FrameFailure):
                raise RemoteError(f"{self.address}: {message.error}")
            answer, outputs = self._expect(message, messages.FrameAnswer), stage.outputs
            # The server is not trusted either: what it says may allocate no more than the stage can make.
            limit = max(messages.LARGEST_FRAME, sum(spec.nbytes for spec in outputs))
            if len(answer.tensors) != len(outputs) or sum(tensor.nbytes for tensor in answer.tensors) > limit:
                raise MalformedMessage(f"{len(answer.tensors)} results came; the stage makes {len(outputs)}")
            # Code for frames of any size makes results of any size, but for the plan's frames those of the plan.
            is_planned = all(array.shape == spec.shape for array, spec in zip(inputs, stage.inputs, strict=True))
            for head, spec in zip(answer.tensors, outputs, strict=True):
                if not head.fits(spec) or (is_planned and head.shape != spec.shape):
                    raise MalformedMessage(f"a result is {head.dtype}{list(head.shape)}; the stage makes {spec}")
            self._note_version(answer.bundle_version)
            return self._results(answer), answer.seconds

    @property
    def slots(self) -> int:
        """Concurrent frames on the server's device."""
        device = self.address.device
        if device == BUNDLE:
            return self.welcome.bundle_slots
        return self.welcome.slots if device_kind(device).is_served_in_slots else 1

    def usable(self) -> bool:
        """Return False if the server left since the last frame, if known."""
        # A server that has ended or been restarted said so; between frames it says nothing else.
        return self._wire.quiet()

    def break_off(self) -> None:
        """Make another thread's waiting call fail."""
        self._wire.break_off()

    def close(self) -> None:
        """End the session."""
        self._drop_memory()
        self._wire.close()

    def _send_frame(self, program: int, inputs: Sequence[np.ndarray]) -> None:
        heads = tensors.heads(inputs)
        if self._memory is not None and frame_memory.put(self._memory.requests, inputs, heads):
            self._wire.send(messages.FrameRequest(program, heads, in_memory=True))
        else:
            self._wire.send(messages.FrameRequest(program, heads), [contents(array) for array in inputs])

    def _results(self, answer: messages.FrameAnswer) -> list[np.ndarray]:
        if not answer.in_memory:
            return tensors.receive(self._wire, answer.tensors)
        if self._memory is None:
            raise MalformedMessage("the results are in memory that is not shared")
        try:
            # Copies: the next frame's results come to the same place.
            return [memory.snapshot(array) for array in frame_memory.views(self._memory.answers, answer.tensors)]
        except ValueError as error:
            raise MalformedMessage(f"the results are {error}") from None

    def _drop_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _upload(self, package: StagePackage, missing_files: messages.MissingFiles) -> None:
        for digest in missing_files.digests:
            pieces = package.files.get(digest)
            # Only files of this stage leave the machine, whatever the server asks for.
            if pieces is None:
                raise MalformedMessage("the server asks for a file that is not the stage's")
            self._wire.send(messages.UploadRequest(digest, sum(piece.nbytes for piece in pieces)), pieces)

    def _answer(self, kind: type[Kind]) -> Kind:
        return self._expect(self._message(), kind)

    def _note_version(self, version: str) -> None:
        if version != self.version and self.address.device == BUNDLE:
            logger.warning("%s runs another version of the bundle now: %s", self.address, version)
            self.version = version

    def _message(self, limit: float = OPENING_S) -> ServerMessage:
        begin = time.monotonic()
        while isinstance(message := self._wire.receive(), messages.Heartbeat):
            if time.monotonic() - begin > limit:
                raise DeviceLost(
                    f"{self.address}: the server says that it is alive, and has not answered for {limit:g} s; "
                    "'?limit=SECONDS' in its address lets a frame take longer"
                )
        if isinstance(message, messages.BusyAnswer):
            raise ServerBusy(f"{self.address} is busy: {message.reason}")
        if isinstance(message, messages.RefusalAnswer):
            raise ServerRefusal(f"{self.address} refuses: {message.reason}")
        return message

    def _expect(self, message: ServerMessage, kind: type[Kind]) -> Kind:
        if not isinstance(message, kind):
            raise MalformedMessage(f"the server answers with {type(message).__name__} instead of {kind.__name__}")
        return message

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except RemoteError:
            raise
        except (OSError, MalformedMessage) as error:
            self._wire.close()
            raise self._error(error) from error
        # A refusal, or Ctrl-C in the middle of a message: neither side knows any more where the next one begins.
        except BaseException:
            self._wire.close()
            raise

    def _error(self, error: Exception) -> DeviceLost:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            # It would be the same with the next attempt.
            return ServerRefusal(f"{self.address}: {describe_error(error)}")
        return DeviceLost(f"{self.address}: {why(error, self.address.timeout)}")


def why(error: Exception, timeout: float) -> str:
    """Return the reason why a server is lost."""
    if isinstance(error, TimeoutError):
        return f"the server has given no sign of life for {timeout:g} s"
    if isinstance(error, ssl.SSLEOFError):
        return "the server has closed the connection"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; start the server on that machine"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
