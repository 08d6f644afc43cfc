"""Transports for tensors between two processes of one machine.

A message of 100 bytes goes there and back (latency); many of 100 kB to 10 MB go one way, the last one is answered
(throughput).  The other side is a process of its own.  Where a transport can, tensors are sent from and received into
their own memory; what it cannot is part of its cost:

- ``tcp``, ``unix``: the package's own framing (`pipeline.remote.wire`) over a stream socket, received into new memory;
- ``zeromq``: pyzmq, PAIR sockets over TCP, without copies in Python;
- ``zenoh``: eclipse-zenoh, two peers over TCP, publisher and subscriber; its Python binding copies on both sides;
- ``shared``: memory that both processes have mapped, copied into by the sender and used in place by the receiver; a
  socket tells of each message and of each place that is free again.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import report

from pipeline.remote import messages, tensors
from pipeline.remote.wire import Wire
from pipeline.system.memory import contents

LATENCY_BYTES = 100
SIZES = {100_000: 400, 1_000_000: 100, 10_000_000: 16}
"""Bytes of a message, and how many are sent in one round."""

ROUNDS, TRIPS = 7, 300
ANSWER, SILENT = 1, 0
"""The first byte of a message says whether it is to be answered."""


class Transport(ABC):
    """One end of a connection; the one that listens is started first."""

    @abstractmethod
    def __init__(self, endpoint: str, *, listen: bool) -> None:
        """Listen at, or connect to, an endpoint that is a free port or an unused path."""

    @abstractmethod
    def send(self, array: np.ndarray) -> None:
        """Send bytes."""

    @abstractmethod
    def receive(self) -> int:
        """Receive a message where it could be computed on, and return its first byte."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""


class Tcp(Transport):
    family: ClassVar[Any] = socket.AF_INET

    def __init__(self, endpoint: str, *, listen: bool) -> None:
        self._wire: Wire[Any] = Wire(connect(self.family, endpoint, listen=listen), messages.ClientMessage)

    def send(self, array: np.ndarray) -> None:
        self._wire.send(messages.FrameRequest(0, tensors.heads([array])), [contents(array)])

    def receive(self) -> int:
        return int(tensors.receive(self._wire, self._wire.receive().tensors)[0][0])

    def close(self) -> None:
        self._wire.close()


class Unix(Tcp):
    family = socket.AF_UNIX


class ZeroMQ(Transport):
    def __init__(self, endpoint: str, *, listen: bool) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        address = f"tcp://127.0.0.1:{endpoint}"
        if listen:
            self._socket.bind(address)
        else:
            self._socket.connect(address)

    def send(self, array: np.ndarray) -> None:
        self._socket.send(contents(array), copy=False)

    def receive(self) -> int:
        return int(self._socket.recv(copy=False).buffer[0])

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()


class Zenoh(Transport):
    def __init__(self, endpoint: str, *, listen: bool) -> None:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("listen/endpoints" if listen else "connect/endpoints", f'["tcp/127.0.0.1:{endpoint}"]')
        if not listen:
            config.insert_json5("listen/endpoints", "[]")
        config.insert_json5("scouting/multicast/enabled", "false")
        self._session = zenoh.open(config)
        ours, theirs = ("there", "here") if listen else ("here", "there")
        self._incoming = self._session.declare_subscriber(theirs)
        self._outgoing = self._session.declare_publisher(ours, congestion_control=zenoh.CongestionControl.BLOCK)
        outgoing: Any = self._outgoing
        while not outgoing.matching_status.matching:
            time.sleep(0.01)

    def send(self, array: np.ndarray) -> None:
        self._outgoing.put(array.tobytes())

    def receive(self) -> int:
        return self._incoming.recv().payload.to_bytes()[0]

    def close(self) -> None:
        session: Any = self._session
        session.close()


class Shared(Transport):
    # Several, so that one is filled while another is read.
    slots = 4
    # The largest message, and a cache line between two of them.
    slot_bytes = 10_000_064

    def __init__(self, endpoint: str, *, listen: bool) -> None:
        self._socket = connect(socket.AF_UNIX, endpoint, listen=listen)
        folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(endpoint).parent
        size = 2 * self.slots * self.slot_bytes
        path = folder / Path(endpoint).name.replace(".", "-")
        # The listener makes the file in its full length before the other side maps it, and removes its name as soon as
        # both have it: from then on nothing stays behind, however the processes end.
        if listen:
            path.write_bytes(b"")
            with path.open("r+b") as stream:
                stream.truncate(size)
            self._socket.sendall(b"+")
        else:
            self._socket.recv(1)
        with path.open("r+b") as stream:
            self._memory = memoryview(mmap.mmap(stream.fileno(), size))
        if listen:
            self._socket.recv(1)
            path.unlink()
        else:
            self._socket.sendall(b"+")
        self._out, self._in = (0, self.slots) if listen else (self.slots, 0)
        self._free_slots = list(range(self.slots))
        self._arrived_slots: list[int] = []

    def send(self, array: np.ndarray) -> None:
        while not self._free_slots:
            self._listen()
        slot = self._free_slots.pop(0)
        start = (self._out + slot) * self.slot_bytes
        self._memory[start : start + array.nbytes] = contents(array)
        self._socket.sendall(bytes([slot]))

    def receive(self) -> int:
        while not self._arrived_slots:
            self._listen()
        slot = self._arrived_slots.pop(0)
        first = self._memory[(self._in + slot) * self.slot_bytes]
        # 128 and above: the slot is free again; below: a message has arrived in it.
        self._socket.sendall(bytes([slot + 128]))
        return first

    def _listen(self) -> None:
        for note in self._socket.recv(64) or _raise_reset():
            if note >= 128:
                self._free_slots.append(note - 128)
            else:
                self._arrived_slots.append(note)

    def close(self) -> None:
        self._socket.close()


def _raise_reset() -> bytes:
    raise ConnectionResetError


TRANSPORTS: Mapping[str, type[Transport]] = {
    "tcp": Tcp, "unix": Unix, "zeromq": ZeroMQ, "zenoh": Zenoh, "shared": Shared
}  # fmt: skip


def connect(family: Any, endpoint: str, *, listen: bool) -> socket.socket:
    """Return a socket that is connected to the other side."""
    address: Any = endpoint if family == socket.AF_UNIX else ("127.0.0.1", int(endpoint))
    if listen:
        with socket.create_server(address, family=family) as listener:
            return listener.accept()[0]
    # The other process imports NumPy and the package before it listens, which takes seconds on a busy machine.
    deadline = time.monotonic() + 20
    while True:
        ours = socket.socket(family)
        try:
            ours.connect(address)
        except OSError:
            ours.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return ours


def answer(name: str, endpoint: str) -> None:
    """Be the other side, until the connection ends."""
    end = TRANSPORTS[name](endpoint, listen=True)
    reply = np.full(LATENCY_BYTES, SILENT, np.uint8)
    with contextlib.suppress(OSError):
        while True:
            if end.receive() == ANSWER:
                end.send(reply)


@contextlib.contextmanager
def pair(name: str, folder: str) -> Iterator[Transport]:
    """Give this end of a connection to a new process."""
    # A port that is free now; the child listens there as soon as it has started.
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = str(free.getsockname()[1])
    if name in ("unix", "shared"):
        endpoint = str(Path(folder) / f"soc-pipeline-bench-{endpoint}")
    child = subprocess.Popen([sys.executable, __file__, "--answer", name, endpoint])
    try:
        end = TRANSPORTS[name](endpoint, listen=False)
        yield end
        end.close()
    finally:
        child.kill()
        child.wait()


def main() -> None:
    options = report.parser(__doc__)
    options.add_argument("--answer", nargs=2, metavar=("TRANSPORT", "WHERE"), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.answer:
        answer(*arguments.answer)
        return
    names = [name for name in TRANSPORTS if usable(name)]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ends = {name: stack.enter_context(pair(name, folder)) for name in names}
        rows = measure(ends, 2 if arguments.quick else ROUNDS)
    caption = "Rounds of all transports take turns; medians. GB/s one way, in memory where it could be computed on."
    report.report("Messages between two processes over loopback", rows, caption, arguments.json)


def usable(name: str) -> bool:
    """Tell if a transport's package is installed."""
    module = {"zeromq": "zmq", "zenoh": "zenoh"}.get(name)
    if module and report.installed_version({"zmq": "pyzmq", "zenoh": "eclipse-zenoh"}[module]) is None:
        print(f"{name} is left out: it is not installed", file=sys.stderr)
        return False
    return True


def measure(ends: Mapping[str, Transport], rounds: int) -> list[report.Row]:
    """Return one row for each transport."""
    trips: dict[str, list[float]] = {name: [] for name in ends}
    rates: dict[tuple[str, int], list[float]] = {(name, size): [] for name in ends for size in SIZES}
    for _ in range(rounds):
        for name, end in ends.items():
            trips[name] += round_trips(end)
            for size, count in SIZES.items():
                rates[name, size].append(rate(end, size, count))
    return [
        {
            "transport": name,
            "round_trip_us_p50": 1e6 * report.median(trips[name]),
            "round_trip_us_p99": 1e6 * report.percentile(trips[name], 0.99),
            **{f"gb_per_s_{size // 1000}_kb": report.median(rates[name, size]) for size in SIZES},
        }
        for name in ends
    ]


def round_trips(end: Transport) -> list[float]:
    """Return the seconds of small messages there and back."""
    message = np.full(LATENCY_BYTES, ANSWER, np.uint8)
    times = []
    for _ in range(TRIPS):
        begin = time.perf_counter()
        end.send(message)
        end.receive()
        times.append(time.perf_counter() - begin)
    # The first tenth finds cold caches, and cores that sleep.
    return times[TRIPS // 10 :]


def rate(end: Transport, size: int, count: int) -> float:
    """Return the gigabytes per second of large messages, the last of which is answered."""
    message, last = np.full(size, SILENT, np.uint8), np.full(size, ANSWER, np.uint8)
    begin = time.perf_counter()
    for _ in range(count - 1):
        end.send(message)
    end.send(last)
    end.receive()
    return size * count / (time.perf_counter() - begin) / 1e9


if __name__ == "__main__":
    main()
