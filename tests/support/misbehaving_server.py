"""Servers of this process that greet and open as they should, and misbehave on frames."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.core.plan.plan import StagePlan
from pipeline.remote import messages
from pipeline.remote.messages import ClientMessage, TensorHead
from pipeline.remote.wire import MalformedMessage, Wire

WAYS = (
    "close", "other shape", "other dtype", "two results", "garbage", "endless", "half", "huge", "refuse", "not open",
    "busy", "fail",
)  # fmt: skip
"""Ways to misbehave; "good" is none of them."""


class MisbehavingServer:
    """Serves a device that echoes zeros.

    Parameters
    ----------
    way : str
        ``"good"`` or one of `WAYS`; may be set to another one at any time.
    seconds : float
        For which a frame is computed, one at a time; may be changed as well.

    Attributes
    ----------
    frames : int
        How many came.
    """

    def __init__(self, way: str, seconds: float = 0.002) -> None:
        self.way, self.frames, self.seconds = way, 0, seconds
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._computing, self._ending = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def address(self, options: str = "?timeout=1") -> str:
        return f"remote://127.0.0.1:{self.port}/simulated{options}"

    def close(self) -> None:
        self._ending.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        wire: Wire[Any] = Wire(connection, ClientMessage)
        wire.limit(None)
        # Ends sessions that wait for a next frame when the server does.
        threading.Thread(target=self._end, args=(wire,), daemon=True).start()
        with contextlib.suppress(OSError, MalformedMessage):
            self._answer_all(wire)
        wire.close()

    def _end(self, wire: Wire[Any]) -> None:
        self._ending.wait()
        wire.break_off()

    def _answer_all(self, wire: Wire[Any]) -> None:
        wire.receive()
        if self.way == "busy":
            wire.send(messages.BusyAnswer("full"))
            return
        devices = ("simulated",)
        wire.send(messages.Welcome(messages.PROTOCOL, "0", "0", "x86_64", "x", devices, (0,), 1 << 30, uploads=False))
        stages: list[StagePlan] = []
        while True:
            message = wire.receive()
            if isinstance(message, messages.OpenRequest):
                if self.way == "not open":
                    wire.send(messages.RefusalAnswer("the stage cannot be loaded"))
                    return
                stages.append(message.stage)
                wire.send(messages.OpenAnswer(len(stages) - 1))
                continue
            for head in message.tensors:
                wire.fill(memoryview(bytearray(head.nbytes)))
            self.frames += 1
            if self.way != "fail":
                # A broken accelerator fails at once, so that it has the least to do.
                with self._computing:
                    time.sleep(self.seconds)
            if not self._answer(wire, stages[message.program]):
                return

    def _answer(self, wire: Wire[Any], stage: StagePlan) -> bool:
        """Answer a frame, and return whether the session goes on."""
        heads = [TensorHead(spec.dtype, spec.shape) for spec in stage.outputs]
        if self.way in {"close", "garbage", "refuse", "endless", "half", "fail"}:
            return self._break(wire, heads)
        if self.way == "other shape":
            heads = [TensorHead(head.dtype, (7,)) for head in heads]
        elif self.way == "other dtype":
            heads = [TensorHead("int8", head.shape) for head in heads]
        elif self.way == "two results":
            heads *= 2
        elif self.way == "huge":
            heads = [TensorHead("float32", (1 << 40,))]
        content = [memoryview(bytes(head.nbytes)) for head in heads if head.nbytes < 1 << 30]
        wire.send(messages.FrameAnswer(tuple(heads), 0.001), content)
        return True

    def _break(self, wire: Wire[Any], heads: Sequence[TensorHead]) -> bool:
        if self.way == "fail":
            wire.send(messages.FrameFailure("RuntimeError: the accelerator is in a bad state"))
        elif self.way == "refuse":
            wire.send(messages.RefusalAnswer("no"))
        elif self.way == "garbage":
            with contextlib.suppress(AttributeError):
                wire._socket.sendall(b"garbage" * 100)
        elif self.way == "half":
            wire.send(messages.FrameAnswer(tuple(heads), 0.001), [memoryview(bytes(heads[0].nbytes // 2))])
            self._ending.wait(30)
        while self.way == "endless" and not self._ending.wait(0.05):
            wire.send(messages.Heartbeat())
        return self.way == "fail"


@contextlib.contextmanager
def misbehaving(*ways: str) -> Iterator[list[MisbehavingServer]]:
    """Give servers that behave in these ways."""
    with contextlib.ExitStack() as stack:
        servers = []
        for way in ways:
            servers.append(MisbehavingServer(way))
            stack.callback(servers[-1].close)
        yield servers


def pool_address(servers: Sequence[MisbehavingServer], options: str = "?timeout=1") -> str:
    """Return the address of a pool of servers."""
    return "pool:" + ",".join(server.address(options) for server in servers)
