"""RPC session with a TVM server, shared by this process's stages."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Iterator
from time import monotonic
from typing import Any

from pipeline.core.remote_address import Address
from pipeline.errors import BundleError, DeviceLost, RemoteError, reason
from pipeline.remote import rpc_tracker
from pipeline.remote.connection import why
from pipeline.remote.rpc_proxy import RpcProxy
from pipeline.system import forks
from pipeline.tvm.access import tvm

SLOWEST = 5e6
"""Least bytes per second of a link, so that sending what is large is not taken for a server that hangs."""

LOOK_S = 2.0
"""Seconds between two questions to a tracker about the need of a shared session, at least."""
LOOK = 20
"""The same as a multiple of the last answer's time: a hanging tracker costs 5 % of the time, and not a frame."""


class RpcSession:
    """Session from `join` to the last `leave`, with the address's device there, for stages that share it."""

    def __init__(self, address: Address) -> None:
        from tvm import rpc

        self.address, self.users = address, 0
        # TVM's client is not made for several threads: one at a time talks to the server, and the limit begins with its
        # turn.
        self._turn = threading.Lock()
        self._modules: dict[str, Any] = {}
        try:
            host, port, key = (
                rpc_tracker.take_server(address) if address.tracker else (address.host, address.port, address.key)
            )
            # Between TVM and the server, since TVM waits for ever, with the interpreter's lock held; see there.
            self._proxy = RpcProxy(host, port, address.timeout)
        except OSError as error:
            raise DeviceLost(f"{address}: {why(error, address.timeout)}") from error
        try:
            with self.call(0, "it serves somebody else already, or hangs"):
                self._session = rpc.connect("127.0.0.1", self._proxy.port, key)
                self.device: Any = self._session.device(address.device, 0)
        except BaseException:
            self._proxy.close()
            raise
        forks.watch(self)

    def after_fork(self) -> None:
        """Leave the session to the parent process; TVM would end both."""
        forks.keep(self)
        # They are the parent's; a pipeline that is loaded here begins sessions of its own.
        _addresses.clear()
        self._proxy.after_fork()

    @property
    def ended(self) -> bool:
        """True once it is of no use any more."""
        return self._proxy.ended

    def module(self, name: str, library: Any) -> Any:
        """Return a library loaded there, for use inside `call`.

        The library is sent once: to write to the file of a library that is in use would change its code.
        """
        if name not in self._modules:
            self._session.upload(bytearray(library), name)
            self._modules[name] = self._session.load_module(name)
        return self._modules[name]

    @contextlib.contextmanager
    def turn(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the session alone, at most `seconds` (default: the address's `timeout`)."""
        with self._turn, self._proxy.limit(self.address.timeout if seconds is None else seconds):
            yield

    @contextlib.contextmanager
    def call(self, nbytes: int, hint: str = "it hangs") -> Iterator[None]:
        """Hold the session alone for calls moving `nbytes`.

        Raises `DeviceLost` if they take too long, or the server is gone; `RemoteError` if they fail there; the session
        remains of use.
        """
        limit = self.address.timeout + nbytes / SLOWEST
        try:
            with self.turn(limit), _clear_frames():
                yield
        except (tvm.error.InternalError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            # A file of ours that is damaged is none of the board's errors.
            if isinstance(error, BundleError):
                raise
            cause = reason(error)
            if self._proxy.expired:
                raise DeviceLost(f"{self.address}: no answer within {limit:.3g} s: {hint}") from error
            if self._proxy.ended:
                raise DeviceLost(f"{self.address}: the server has closed the connection: {cause}") from error
            raise RemoteError(f"{self.address}: {cause}") from error

    def break_off(self) -> None:
        """End all calls, in any thread."""
        self._proxy.break_off()

    def close(self) -> None:
        """End the session, freeing the server for the next."""
        with self.turn():
            self._modules.clear()
            # TVM ends a session with the last object that refers to it: within the limit, as it says goodbye and may
            # hang.
            self._session = self.device = None
        self._proxy.close()


@contextlib.contextmanager
def _clear_frames() -> Iterator[None]:
    """Clear an error's references to the board, whose release has no limit."""
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise


class _Sessions:
    """Sessions with one address."""

    def __init__(self, address: Address) -> None:
        self._address, self._sessions = address, list[RpcSession]()
        self._lock = threading.Lock()
        self._next_look = 0.0

    def join(self) -> RpcSession:
        """Return a session with one more user."""
        with self._lock:
            # Under the lock, which is held while connecting: such a server leaves a second connection waiting until the
            # first one ends.
            self._sessions = [session for session in self._sessions if not session.ended]
            if not self._sessions:
                self._sessions.append(RpcSession(self._address))
            elif self._address.tracker and rpc_tracker.has_free_server(self._address):
                # Another process may be faster, or the server be gone: then a session is shared after all.
                with contextlib.suppress(DeviceLost):
                    self._sessions.append(RpcSession(self._address))
            # The one with fewest users: calls of one session take turns.
            session = min(self._sessions, key=lambda candidate: candidate.users)
            session.users += 1
            return session

    def has_better(self, session: RpcSession) -> bool:
        """Test if a sharing user could get its own server; rarely asked."""
        # Whoever begins or ends a session holds the lock for as long as its server takes: no frame waits for that.
        if not self._address.tracker or session.users < 2 or not self._lock.acquire(blocking=False):
            return False
        try:
            begin = monotonic()
            if begin < self._next_look:
                return False
            is_free = rpc_tracker.has_free_server(self._address)
            # The next user is told so later, or all of them would leave for the one server.
            self._next_look = monotonic() + max(LOOK_S, LOOK * (monotonic() - begin))
            return is_free
        finally:
            self._lock.release()

    def leave(self, session: RpcSession) -> None:
        """Remove a user of the session; the last one ends it."""
        with self._lock:
            session.users -= 1
            if session.users == 0:
                if session in self._sessions:
                    self._sessions.remove(session)
                # Under the lock too: whoever joins at this moment finds the server free.
                session.close()


_addresses: dict[Address, _Sessions] = {}


def join(address: Address) -> RpcSession:
    """Return an address's session, new if necessary, until `leave`.

    Raises `DeviceLost` if the server cannot be reached, or serves another process.
    """
    return _addresses.setdefault(address, _Sessions(address)).join()


def has_better(session: RpcSession) -> bool:
    """Test if rejoining would give an own server; rarely asked."""
    return _addresses[session.address].has_better(session)


def leave(session: RpcSession) -> None:
    """Remove a user of the session; the last one ends it."""
    _addresses[session.address].leave(session)
