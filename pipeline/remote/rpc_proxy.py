"""RpcProxy: breakable forwarding of another party's connection.

TVM's RPC waits for ever for a server that hangs, and some of its calls hold Python's interpreter lock meanwhile, so
that no other thread of the process runs.  It is given a port of this machine instead, where a small process passes its
bytes on, and closes both ends when a call takes too long.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from time import monotonic

BLOCK = 1 << 18
START_S = 30.0
"""The process may take so long to start, on a slow board under load."""

_SECONDS = struct.Struct("d")
_EXPIRED, _ENDED = b"x", b"e"


class RpcProxy:
    """Process forwarding one client at `port`, of the loopback address, to a server.

    Raises `OSError` if the server cannot be reached in `timeout` seconds.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        # Connected here, where errors can be told; the process inherits the socket.
        with socket.create_connection((host, port), timeout=timeout) as server:
            self._start(server, timeout)
        self._state = b""
        if not _is_readable(self._reports, START_S) or not (report := os.read(self._reports, 16)):
            self.close()
            raise OSError("the process that watches the connection did not start")
        self.port = int(report)

    @property
    def ended(self) -> bool:
        """True after forwarding ended, by either side or a limit."""
        self._read_report()
        return bool(self._state)

    @property
    def expired(self) -> bool:
        """True once a limit was exceeded."""
        self._read_report()
        return self._state == _EXPIRED

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Break the connection if the block takes longer."""
        self._order_limit(seconds)
        try:
            yield
        finally:
            self._order_limit(inf)

    def break_off(self) -> None:
        """End process and connection; waiting threads continue."""
        self._child.kill()

    def after_fork(self) -> None:
        """Leave the process to the forking parent."""
        # Or `subprocess` would wait for a process that is not this one's child, and complain.
        self._child.returncode = 0
        self._state = _ENDED
        self._close_pipes()

    def close(self) -> None:
        """End the process and release its watching resources."""
        self.break_off()
        self._child.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        # Once only: by then their numbers may be those of other files.
        while self._pipes:
            os.close(self._pipes.pop())

    def _start(self, server: socket.socket, timeout: float) -> None:
        report_end, write_end = os.pipe()
        order_end, self._orders = os.pipe()
        self._reports = report_end
        self._pipes = [report_end, self._orders]
        handles = (server.fileno(), order_end, write_end)
        # Neither site packages nor this package: so it starts at once, also on a slow board.
        line = [sys.executable, "-I", "-S", __file__, *map(str, handles), str(timeout)]
        try:
            self._child = subprocess.Popen(line, pass_fds=handles, stdin=subprocess.DEVNULL)  # noqa: S603 - this file
        finally:
            os.close(write_end)
            # Both ends of the child are closed here, so that its end is seen as the end of the pipe.
            os.close(order_end)

    def _order_limit(self, seconds: float) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `ended` says
            os.write(self._orders, _SECONDS.pack(seconds))

    def _read_report(self) -> None:
        if not self._state and _is_readable(self._reports, 0.0):
            # It says why before it closes the connection; if it says nothing, somebody has ended it.
            self._state = os.read(self._reports, 1) or _ENDED


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Wait up to `seconds` for a readable or ended pipe; return success."""
    # `select` takes no descriptor above 1023, which a program with many files or pipelines has.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1e3 * seconds))


class ByteForwarder:
    """Forwarding between two sides within the process, with a deadline."""

    def __init__(self, server: socket.socket, client: socket.socket, orders: int) -> None:
        self._opposite = {server: client, client: server}
        self._waiting = {side: memoryview(b"") for side in self._opposite}
        self._orders, self._deadline = orders, inf
        for side in self._opposite:
            side.setblocking(False)

    def live(self) -> bytes:
        """Forward until one side's end or the deadline, and return which."""
        while True:
            ready = self._ready()
            if monotonic() >= self._deadline:
                return _EXPIRED
            if self._orders in ready:
                if not (order := os.read(self._orders, _SECONDS.size)):
                    return _ENDED
                self._deadline = monotonic() + _SECONDS.unpack(order)[0]
            for side in self._opposite:
                if not self._transfer(side, ready.get(side.fileno(), 0)):
                    return _ENDED

    def _ready(self) -> dict[int, int]:
        """Wait for orders, writable sides with pending bytes, or readable ones."""
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        for side, opposite in self._opposite.items():
            # What is read must find its way free.
            reading = 0 if self._waiting[opposite] else select.POLLIN
            poll.register(side, reading | (select.POLLOUT if self._waiting[side] else 0))
        remaining_s = self._deadline - monotonic()
        return dict(poll.poll(None if remaining_s == inf else max(0.0, 1e3 * remaining_s)))

    def _transfer(self, side: socket.socket, ready: int) -> bool:
        """Send to and receive from a ready side; False if gone."""
        opposite = self._opposite[side]
        try:
            if ready & select.POLLOUT:
                self._waiting[side] = self._waiting[side][side.send(self._waiting[side]) :]
            if ready & ~select.POLLOUT and not self._waiting[opposite]:
                self._waiting[opposite] = memoryview(side.recv(BLOCK))
                return bool(self._waiting[opposite])
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def main(server: int, orders: int, write_end: int, timeout: float) -> None:
    """Run the process on three open files: server, orders, write end."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        listener.settimeout(timeout)
        os.write(write_end, str(listener.getsockname()[1]).encode())
        client = listener.accept()[0]
    with socket.socket(fileno=server) as upstream, client:
        os.write(write_end, ByteForwarder(upstream, client, orders).live())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
