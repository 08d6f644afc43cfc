"""A server's clients, those that behave and those that do not."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost, RemoteError
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.parameters import ITEM_BYTES
from pipeline.remote import messages
from pipeline.remote.connection import Connection, ServerBusy, ServerRefusal
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.messages import FrameRequest, Greeting, OpenRequest, ServerMessage, TensorHead, UploadRequest
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore
from pipeline.remote.wire import LARGEST_HEAD, MAGIC, MalformedMessage, Wire
from tests.remote.conftest import in_thread

LIMIT = 60.0
X, Y = TensorSpec("x", (4,)), TensorSpec("y", (4,))
STAGE = StagePlan("s", "there", (X,), (Y,))
HELLO = Greeting(messages.PROTOCOL, "0", 1.0)
OPEN = OpenRequest("null", STAGE, None, "")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in this process, whose state can be looked at."""
    with serve(ServerDevices(())) as running:
        yield running


@contextlib.contextmanager
def serve(computing: ServerDevices) -> Iterator[Server]:
    with_limits = Offer(FileStore(), computing, (), largest_frame=1_000_000)
    with in_thread(Server("127.0.0.1", 0, with_limits, sessions=4)) as running:
        yield running
    assert running.sessions == 0


class RawWire(Wire[ServerMessage]):
    """A client's end, whose connection can also be used without messages."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, ServerMessage)
        self.connection = connection


@pytest.fixture
def wire(server: Server) -> Iterator[RawWire]:
    yield from raw(server)


def raw(server: Server) -> Iterator[RawWire]:
    ours = RawWire(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT))
    yield ours
    ours.close()


def connect(server: Server, **options: Any) -> Connection:
    return Connection(Address("remote", "127.0.0.1", server.port, **{"device": "null", "timeout": 30.0, **options}))


def works(server: Server) -> None:
    """A client that behaves is served, whatever others have done."""
    connection = connect(server)
    number = connection.open(STAGE, None)
    (outputs,) = connection.run(number, STAGE, [np.arange(4, dtype=np.float32)])
    assert outputs.tolist() == [0, 1, 2, 3]
    connection.close()


def gone(server: Server, count: int = 0) -> None:
    deadline = time.monotonic() + LIMIT
    while server.sessions > count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def refusal(wire: RawWire) -> str:
    message = wire.receive()
    assert isinstance(message, messages.RefusalAnswer), message
    with pytest.raises(ConnectionError):
        wire.receive()
    return message.reason


def exchange(wire: RawWire, *requests: Any) -> None:
    for message in requests:
        wire.send(message)
        assert not isinstance(wire.receive(), messages.RefusalAnswer)


def test_a_frame_of_several_tensors_of_all_kinds(server: Server) -> None:
    specs = tuple(TensorSpec(f"t{number}", (3, number), dtype) for number, dtype in enumerate(ITEM_BYTES))
    specs += (TensorSpec("scalar", ()), TensorSpec("turned", (5, 4)))
    stage = StagePlan("s", "there", specs, specs)
    inputs = [np.random.default_rng(0).random(spec.shape).astype(spec.dtype) for spec in specs[:-1]]
    inputs.append(np.arange(20, dtype=np.float32).reshape(4, 5).T)
    connection = connect(server)
    outputs = connection.run(connection.open(stage, None), stage, inputs)
    for ours, theirs in zip(inputs, outputs, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs)
        assert theirs.ctypes.data % 64 == 0 or not theirs.size
        assert theirs.flags.writeable
    connection.close()


def test_a_stage_that_cannot_be_loaded_is_refused(server: Server) -> None:
    odd_stage = StagePlan("odd", "there", (), (Y,))
    connection = connect(server)
    with pytest.raises(ServerRefusal, match="stage 'odd' cannot be loaded: ZeroDivisionError"):
        connection.open(odd_stage, None)
    works(server)


class FastidiousRuntime(NullRuntime):
    """A device that fails on negative frames."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        if inputs[0][0] < 0:
            raise ValueError("a negative frame")
        return super().run(program, inputs)


def test_a_frame_that_fails_names_the_error_there() -> None:
    with serve(ServerDevices((), FastidiousRuntime)) as server:
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
    with pytest.raises(ServerBusy, match="already has 4 clients"):
        connect(server)
    four.pop().close()
    gone(server, 3)
    works(server)
    for answer_bytes in four:
        answer_bytes.close()
    gone(server)


def test_another_protocol_is_named(wire: RawWire) -> None:
    wire.send(Greeting(99, "9.9", 1.0))
    assert "the client (soc-pipeline 9.9) speaks protocol 99, the server (soc-pipeline" in refusal(wire)


@pytest.mark.parametrize(
    ("opening_messages", "message", "reason"),
    [
        ((), OPEN, "the first message is no greeting"),
        ((HELLO,), HELLO, "Greeting may not come now"),
        ((HELLO,), FrameRequest(0, ()), "a stage that is not open"),
        ((HELLO,), UploadRequest("0" * 64, 5), "an upload that nobody asked for"),
        ((HELLO,), OpenRequest("gpu", STAGE, None, ""), "there is no device 'gpu'; there are cpu"),
        ((HELLO,), OpenRequest("python", STAGE, None, ""), "there is no device 'python'"),
        ((HELLO,), OpenRequest("remote", STAGE, None, ""), "there is no device 'remote'"),
        (
            (HELLO,),
            OpenRequest("null", StagePlan("s", "", (TensorSpec("x", (1 << 40,)),), ()), None, ""),
            "1000000 bytes",
        ),
        (
            (HELLO,),
            OpenRequest("null", StagePlan("s", "", (TensorSpec("x", (1,), "O"),), ()), None, ""),
            "than numbers",
        ),
        ((HELLO, OPEN), FrameRequest(1, ()), "a stage that is not open"),
        ((HELLO, OPEN), FrameRequest(-1, ()), "a stage that is not open"),
        ((HELLO, OPEN), FrameRequest(0, ()), "0 tensors and 0 bytes for 1 inputs"),
        ((HELLO, OPEN), FrameRequest(0, (TensorHead("float32", (1 << 44,)),)), "bytes for 1 inputs"),
        ((HELLO, OPEN), FrameRequest(0, (TensorHead("int8", (4,)),)), "a frame with int8[4] as x: float32[4]"),
        (
            (HELLO, OPEN),
            FrameRequest(0, (TensorHead("float32", (4, 1)),)),
            "a frame with float32[4, 1] as x: float32[4]",
        ),
    ],
)
def test_what_may_not_come_is_refused(
    server: Server, wire: RawWire, opening_messages: Any, message: Any, reason: str
) -> None:
    exchange(wire, *opening_messages)
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
def test_what_is_no_message_is_refused(server: Server, wire: RawWire, data: bytes) -> None:
    wire.connection.sendall(data)
    assert refusal(wire)
    works(server)


def test_fuzzed_messages_end_their_session_at_worst(server: Server) -> None:
    """Valid conversations with bytes changed, left out, doubled or made up, and ends at any point."""
    rng = random.Random(0)
    stage = StagePlan("s", "there", (TensorSpec("x", (64,)),), (TensorSpec("y", (64,)),))
    conversation = [
        HELLO,
        OpenRequest("null", stage, None, "0.27"),
        FrameRequest(0, (TensorHead("float32", (64,)),)),
        UploadRequest("0" * 64, 9),
    ]
    valid_bytes = b"".join(
        frame_message(message) + bytes(256 if isinstance(message, FrameRequest) else 0) for message in conversation
    )
    for _ in range(150):
        data = bytearray(valid_bytes)
        for _ in range(rng.choice((1, 1, 3, 30))):
            position = rng.randrange(len(data))
            change = rng.choice(("byte", "cut", "double", "noise"))
            if change == "byte":
                data[position] = rng.randrange(256)
            elif change == "cut":
                del data[position : position + rng.randrange(1, 9)]
            else:
                data[position:position] = data[position : position + 9] if change == "double" else rng.randbytes(9)
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
        (wire,) = [next(outputs) for outputs in [raw(server)]]
        exchange(wire, *(HELLO, OPEN)[:until])
        if until == 2:
            wire.send(FrameRequest(0, (TensorHead("float32", (4,)),)), [memoryview(bytes(7))])
        wire.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
    gone(server)
    works(server)


def test_a_server_that_says_nonsense_is_lost() -> None:
    """The client trusts a server no more than the server the client."""
    answers = [
        b"HTTP/1.1 400 Bad Request\r\n",
        frame_message(messages.OpenAnswer(0)),
        b"",
        frame_message(messages.RefusalAnswer("no")),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for answer_bytes in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(1 << 16)
                    client.sendall(answer_bytes)

        thread = threading.Thread(target=answer)
        thread.start()
        address = Address("remote", "127.0.0.1", listener.getsockname()[1], timeout=30.0)
        for reason in ("no message", "OpenAnswer instead of Welcome", "closed the connection", "refuses: no"):
            with pytest.raises(DeviceLost, match=reason):
                Connection(address)
        thread.join(LIMIT)


def test_a_port_in_use_is_named(server: Server) -> None:
    from pipeline.errors import PipelineError

    with pytest.raises(PipelineError, match=f"cannot listen at 127.0.0.1:{server.port}: .*; choose another port"):
        Server("127.0.0.1", server.port, Offer(FileStore(), ServerDevices(()), ()))


def frame_message(message: Any) -> bytes:
    head = msgspec.msgpack.encode(message)
    return struct.pack("!4sI", MAGIC, len(head)) + head


def test_the_wire_bounds_what_it_allocates() -> None:
    ours, theirs = socket.socketpair()
    wire: Wire[ServerMessage] = Wire(ours, ServerMessage)
    theirs.sendall(struct.pack("!4sI", MAGIC, LARGEST_HEAD + 1))
    with pytest.raises(MalformedMessage, match=f"at most {LARGEST_HEAD}"):
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


def test_a_refusal_is_heard_also_by_who_has_said_more(server: Server, wire: RawWire) -> None:
    """Closing a connection with something unread in it used to throw the reason away."""
    wire.connection.sendall(b"nonsense" * 1000)
    time.sleep(0.05)
    assert "is no message" in refusal(wire)
