"""Connection: the client's end of one session with a server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from pipeline.errors import DeviceLost, RemoteError
from pipeline.memory import contents
from pipeline.plans import StagePlan
from pipeline.remote import messages, tensors
from pipeline.remote.address import Address
from pipeline.remote.messages import Answer
from pipeline.remote.offer import installed
from pipeline.remote.package import Package, package
from pipeline.remote.wire import Malformed, Wire

Kind = TypeVar("Kind")


class Refused(DeviceLost):
    """Raised when a server will not do what it is asked; asking again does not help."""


class Connection:
    """A session with the server at an address, begun when it is made; used by one thread.

    Parameters
    ----------
    address : Address

    Attributes
    ----------
    welcome : Welcome
        What the server is.

    Raises
    ------
    DeviceLost
        From every call, if the server cannot be reached, refuses, gives no sign of life for the address's `timeout`,
        or is gone.  The connection is of no use then.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            connected = socket.create_connection((address.host, address.port), timeout=address.timeout)
        except OSError as error:
            raise self._error(error) from error
        self._wire: Wire[Answer] = Wire(connected, Answer)
        with self._lost():
            self._wire.limit(address.timeout)
            self._wire.send(messages.Hello(messages.PROTOCOL, installed("soc-pipeline"), address.timeout / 4))
            self.welcome = self._answer(messages.Welcome)

    def target(self) -> dict[str, object]:
        """Return TVM's description of the server's processor."""
        with self._lost():
            self._wire.send(messages.AskTarget())
            return self._answer(messages.Target).description

    def open(self, stage: StagePlan, code: Any) -> int:
        """Let the server load a stage, send it the files that it does not have, and return the stage's number."""
        packed = None if code is None else package(code)
        built_with = installed("apache-tvm")
        request = messages.Open(self.address.device, stage, None if packed is None else packed.stage, built_with)
        with self._lost():
            self._wire.send(request)
            message = self._message()
            if packed is not None and isinstance(message, messages.Missing):
                self._upload(packed, message)
                self._wire.send(request)
                message = self._message()
            return self._checked(message, messages.Opened).program

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one frame through an opened stage.

        Raises
        ------
        RemoteError
            If the stage fails on it; the connection remains of use.
        """
        return self.timed(program, stage, arrays)[0]

    def timed(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
        """Run one frame as `run` does, and return the seconds that the server's device took as well."""
        inputs = [tensors.contiguous(array) for array in arrays]
        with self._lost():
            self._wire.send(messages.Run(program, tensors.heads(inputs)), [contents(array) for array in inputs])
            message = self._message()
            if isinstance(message, messages.Failed):
                raise RemoteError(f"{self.address}: {message.error}")
            answer, outputs = self._checked(message, messages.Ran), stage.outputs
            most = max(messages.LARGEST_FRAME, sum(spec.nbytes for spec in outputs))
            if len(answer.tensors) != len(outputs) or sum(tensor.nbytes for tensor in answer.tensors) > most:
                raise Malformed(f"{len(answer.tensors)} results came; the stage makes {len(outputs)}")
            if not all(map(messages.Tensor.fits, answer.tensors, outputs)):
                raise Malformed("the results are not of the kind that the stage makes")
            return tensors.receive(self._wire, answer.tensors), answer.seconds

    def usable(self) -> bool:
        """Whether the server has not gone since the last frame, as far as this machine knows."""
        # A server that has ended or been restarted said so; between frames it says nothing else.
        return self._wire.quiet()

    def close(self) -> None:
        """End the session."""
        self._wire.close()

    def _upload(self, packed: Package, missing: messages.Missing) -> None:
        for digest in missing.digests:
            pieces = packed.files.get(digest)
            if pieces is None:
                raise Malformed("the server asks for a file that is not the stage's")
            self._wire.send(messages.Upload(digest, sum(piece.nbytes for piece in pieces)), pieces)

    def _answer(self, kind: type[Kind]) -> Kind:
        return self._checked(self._message(), kind)

    def _message(self) -> Answer:
        while isinstance(message := self._wire.receive(), messages.Alive):
            pass
        if isinstance(message, messages.Refused):
            raise Refused(f"{self.address} refuses: {message.reason}")
        return message

    def _checked(self, message: Answer, kind: type[Kind]) -> Kind:
        if not isinstance(message, kind):
            raise Malformed(f"the server answers with {type(message).__name__} instead of {kind.__name__}")
        return message

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except RemoteError:
            raise
        except (OSError, Malformed) as error:
            self._wire.close()
            raise self._error(error) from error
        except BaseException:  # a refusal, or Ctrl-C in the middle of a message
            self._wire.close()
            raise

    def _error(self, error: Exception) -> DeviceLost:
        return DeviceLost(f"{self.address}: {why(error, self.address.timeout)}")


def why(error: Exception, timeout: float) -> str:
    """Say why a server is lost."""
    if isinstance(error, TimeoutError):
        return f"the server has given no sign of life for {timeout:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; start the server on that machine"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
