"""What a server does with clients that behave, and with those that do not."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from pipeline.errors import DeviceLost, RemoteError
from pipeline.plans import StagePlan, TensorSpec
from pipeline.remote import messages
from pipeline.remote.address import Address
from pipeline.remote.computing import Computing
from pipeline.remote.connection import Connection, Refused
from pipeline.remote.messages import Answer, Hello, Open, Run, Tensor, Upload
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.store import Store
from pipeline.remote.wire import LARGEST_HEAD, MAGIC, Malformed, Wire

LIMIT = 60.0
X, Y = TensorSpec("x", (4,)), TensorSpec("y", (4,))
STAGE = StagePlan("s", "there", (X,), (Y,))
HELLO = Hello(messages.PROTOCOL, "0", 1.0)
OPEN = Open("null", STAGE, None, "")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in this process, whose state can be looked at."""
    with_limits = Offer(Store(), Computing(()), (), largest_frame=1_000_000)
    running = Server("127.0.0.1", 0, with_limits, sessions=4)
    thread = threading.Thread(target=running.serve)
    thread.start()
    yield running
    running.close()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert running.sessions == 0


@pytest.fixture
def wire(server: Server) -> Iterator[Wire[Answer]]:
    yield from raw(server)


def raw(server: Server) -> Iterator[Wire[Answer]]:
    ours: Wire[Answer] = Wire(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT), Answer)
    yield ours
    ours.close()


def connect(server: Server, **options: Any) -> Connection:
    return Connection(Address("remote", "127.0.0.1", server.port, "null", timeout=30.0, **options))


def works(server: Server) -> None:
    """A client that behaves is served, whatever others have done."""
    connection = connect(server)
    number = connection.open(STAGE, None)
    (made,) = connection.run(number, STAGE, [np.arange(4, dtype=np.float32)])
    assert made.tolist() == [0, 1, 2, 3]
    connection.close()


def gone(server: Server, count: int = 0) -> None:
    deadline = time.monotonic() + LIMIT
    while server.sessions > count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def refusal(wire: Wire[Answer]) -> str:
    message = wire.receive()
    assert isinstance(message, messages.Refused), message
    with pytest.raises(ConnectionError):
        wire.receive()
    return message.reason


def greeted(wire: Wire[Answer], *more: Any) -> None:
    for message in more:
        wire.send(message)
        assert not isinstance(wire.receive(), messages.Refused)


def test_a_frame_of_several_tensors_of_all_kinds(server: Server) -> None:
    specs = tuple(TensorSpec(f"t{number}", (3, number), dtype) for number, dtype in enumerate(messages.ITEM_BYTES))
    specs += (TensorSpec("scalar", ()), TensorSpec("turned", (5, 4)))
    stage = StagePlan("s", "there", specs, specs)
    sent = [np.random.default_rng(0).random(spec.shape).astype(spec.dtype) for spec in specs[:-1]]
    sent.append(np.arange(20, dtype=np.float32).reshape(4, 5).T)
    connection = connect(server)
    made = connection.run(connection.open(stage, None), stage, sent)
    for ours, theirs in zip(sent, made, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs)
        assert theirs.ctypes.data % 64 == 0 or not theirs.size
        assert theirs.flags.writeable
    connection.close()


def test_a_stage_that_cannot_be_loaded_is_refused(server: Server) -> None:
    odd = StagePlan("odd", "there", (), (Y,))
    connection = connect(server)
    with pytest.raises(Refused, match="stage 'odd' cannot be loaded: ZeroDivisionError"):
        connection.open(odd, None)
    works(server)


def test_a_frame_that_fails_names_the_error_there(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.executor.devices.null import NullRuntime

    real = NullRuntime.run

    def run(self: Any, program: Any, inputs: Any) -> Any:
        if inputs[0][0] < 0:
            raise ValueError("a negative frame")
        return real(self, program, inputs)

    monkeypatch.setattr(NullRuntime, "run", run)
    connection = connect(server)
    number = connection.open(STAGE, None)
    with pytest.raises(RemoteError, match=f"remote://127.0.0.1:{server.port}/null: ValueError: a negative frame"):
        connection.run(number, STAGE, [np.full(4, -1, np.float32)])
    assert connection.run(number, STAGE, [np.ones(4, np.float32)])[0][0] == 1
    connection.close()


def test_a_slow_stage_is_no_hung_server(server: Server) -> None:
    slow = StagePlan("slow", "there", (X,), (Y,), seconds=0.5)
    connection = Connection(Address("remote", "127.0.0.1", server.port, "simulated", timeout=0.25))
    assert connection.run(connection.open(slow, None), slow, [np.ones(4, np.float32)])[0][0] == 1
    connection.close()


def test_sessions_are_bounded_and_given_back(server: Server) -> None:
    four = [connect(server) for _ in range(4)]
    with pytest.raises(Refused, match="already has 4 clients"):
        connect(server)
    four.pop().close()
    gone(server, 3)
    works(server)
    for each in four:
        each.close()
    gone(server)


def test_another_protocol_is_named(wire: Wire[Answer]) -> None:
    wire.send(Hello(99, "9.9", 1.0))
    assert "the client (soc-pipeline 9.9) speaks protocol 99, the server (soc-pipeline" in refusal(wire)


@pytest.mark.parametrize(
    ("before", "message", "reason"),
    [
        ((), OPEN, "the first message is no greeting"),
        ((HELLO,), HELLO, "Hello may not come now"),
        ((HELLO,), Run(0, ()), "a stage that is not open"),
        ((HELLO,), Upload("0" * 64, 5), "an upload that nobody asked for"),
        ((HELLO,), Open("gpu", STAGE, None, ""), "there is no device 'gpu'; there are cpu"),
        ((HELLO,), Open("python", STAGE, None, ""), "there is no device 'python'"),
        ((HELLO,), Open("remote", STAGE, None, ""), "there is no device 'remote'"),
        ((HELLO,), Open("null", StagePlan("s", "", (TensorSpec("x", (1 << 40,)),), ()), None, ""), "1000000 bytes"),
        ((HELLO,), Open("null", StagePlan("s", "", (TensorSpec("x", (1,), "O"),), ()), None, ""), "than numbers"),
        ((HELLO, OPEN), Run(1, ()), "a stage that is not open"),
        ((HELLO, OPEN), Run(-1, ()), "a stage that is not open"),
        ((HELLO, OPEN), Run(0, ()), "0 tensors and 0 bytes for 1 inputs"),
        ((HELLO, OPEN), Run(0, (Tensor("float32", (1 << 44,)),)), "bytes for 1 inputs"),
        ((HELLO, OPEN), Run(0, (Tensor("int8", (4,)),)), "a frame with int8[4] as x: float32[4]"),
        ((HELLO, OPEN), Run(0, (Tensor("float32", (4, 1)),)), "a frame with float32[4, 1] as x: float32[4]"),
    ],
)
def test_what_may_not_come_is_refused(
    server: Server, wire: Wire[Answer], before: Any, message: Any, reason: str
) -> None:
    greeted(wire, *before)
    wire.send(message)
    assert reason in refusal(wire)
    works(server)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: board\r\n\r\n",
        struct.pack("!4sI", MAGIC, LARGEST_HEAD + 1),
        struct.pack("!4sI", MAGIC, 0xFFFFFFFF),
        struct.pack("!4sI", b"SoC9", 10) + bytes(10),
        struct.pack("!4sI", MAGIC, 3) + b"\xc1\xc1\xc1",
        struct.pack("!4sI", MAGIC, 100_000) + b"\x91" * 100_000,
        struct.pack("!4sI", MAGIC, 0),
    ],
)
def test_what_is_no_message_is_refused(server: Server, wire: Wire[Answer], data: bytes) -> None:
    wire._socket.sendall(data)
    assert refusal(wire)
    works(server)


def test_fuzzed_messages_end_their_session_at_worst(server: Server) -> None:
    """Valid conversations with bytes changed, left out, doubled or made up, and ends at any point."""
    rng = random.Random(0)
    stage = StagePlan("s", "there", (TensorSpec("x", (64,)),), (TensorSpec("y", (64,)),))
    said = [HELLO, Open("null", stage, None, "0.27"), Run(0, (Tensor("float32", (64,)),)), Upload("0" * 64, 9)]
    whole = b"".join(_framed(message) + bytes(256 if isinstance(message, Run) else 0) for message in said)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3, 30))):
            at = rng.randrange(len(data))
            change = rng.choice(("byte", "cut", "double", "noise"))
            if change == "byte":
                data[at] = rng.randrange(256)
            elif change == "cut":
                del data[at : at + rng.randrange(1, 9)]
            else:
                data[at:at] = data[at : at + 9] if change == "double" else rng.randbytes(9)
        client = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT)
        with client, contextlib.suppress(OSError):  # the server did not listen to the end
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
        gone(server, 3)
    gone(server)
    works(server)


def test_clients_that_vanish_leave_nothing(server: Server) -> None:
    for until in range(4):
        (wire,) = [next(made) for made in [raw(server)]]
        greeted(wire, *(HELLO, OPEN)[:until])
        if until == 2:
            wire.send(Run(0, (Tensor("float32", (4,)),)), [memoryview(bytes(7))])
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
    gone(server)
    works(server)


def test_a_server_that_says_nonsense_is_lost() -> None:
    """The client trusts a server no more than the server the client."""
    answers = [b"HTTP/1.1 400 Bad Request\r\n", _framed(messages.Opened(0)), b"", _framed(messages.Refused("no"))]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for each in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(1 << 16)
                    client.sendall(each)

        thread = threading.Thread(target=answer)
        thread.start()
        address = Address("remote", "127.0.0.1", listener.getsockname()[1], timeout=30.0)
        for reason in ("no message", "Opened instead of Welcome", "closed the connection", "refuses: no"):
            with pytest.raises(DeviceLost, match=reason):
                Connection(address)
        thread.join(LIMIT)


def test_a_port_in_use_is_named(server: Server) -> None:
    from pipeline.errors import PipelineError

    with pytest.raises(PipelineError, match=f"cannot listen at 127.0.0.1:{server.port}: .*; choose another port"):
        Server("127.0.0.1", server.port, Offer(Store(), Computing(()), ()))


def _framed(message: Any) -> bytes:
    head = msgspec.msgpack.encode(message)
    return struct.pack("!4sI", MAGIC, len(head)) + head


def test_the_wire_bounds_what_it_allocates() -> None:
    ours, theirs = socket.socketpair()
    wire: Wire[Answer] = Wire(ours, Answer)
    theirs.sendall(struct.pack("!4sI", MAGIC, LARGEST_HEAD + 1))
    with pytest.raises(Malformed, match=f"at most {LARGEST_HEAD}"):
        wire.receive()
    wire.close()
    theirs.close()


def test_the_stage_runs_on_the_device_that_the_address_names(serve: Callable[..., Any]) -> None:
    child = serve("--cores", "0")
    connection = Connection(Address("remote", "127.0.0.1", child.port, timeout=30.0))
    assert connection.welcome.cores == (0,)
    assert {"cpu", "null", "simulated"} <= set(connection.welcome.devices)
    assert not connection.welcome.uploads
    connection.close()


def test_a_refusal_is_heard_also_by_who_has_said_more(server: Server, wire: Wire[Answer]) -> None:
    """Closing a connection with something unread in it used to throw the reason away."""
    wire._socket.sendall(b"nonsense" * 1000)
    time.sleep(0.05)
    assert "is no message" in refusal(wire)
