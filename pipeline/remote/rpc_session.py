"""The session with a TVM RPC server, for all stages of this process that have its address."""

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
"""Bytes per second that a link must reach, so that sending what is large is not taken for a server that hangs."""

LOOK_S, LOOK = 2.0, 20
"""Seconds between two questions to a tracker whether a shared session is still needed, and at least so many times as
long as the last answer took: a tracker that hangs costs 5 % of the time, and not a frame."""


class RpcSession:
    """A session; begun by `join`, and ended by the last `leave`.

    Parameters
    ----------
    address : Address

    Attributes
    ----------
    device : tvm.runtime.Device
        The address's, there.
    users : int
        How many stages share it.
    """

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
        """Leave the session to the parent process; TVM would end it for both."""
        forks.keep(self)
        # They are the parent's; a pipeline that is loaded here begins sessions of its own.
        _addresses.clear()
        self._proxy.after_fork()

    @property
    def ended(self) -> bool:
        """True once it is of no use any more."""
        return self._proxy.ended

    def module(self, name: str, library: Any) -> Any:
        """Return a library as it is loaded there; to be called inside of `call`.

        It is sent once: to write to the file of a library that is in use would change its code.
        """
        if name not in self._modules:
            self._session.upload(bytearray(library), name)
            self._modules[name] = self._session.load_module(name)
        return self._modules[name]

    @contextlib.contextmanager
    def turn(self, seconds: float | None = None) -> Iterator[None]:
        """Have the session alone; it ends if that takes longer than `seconds`, by default the address's `timeout`."""
        with self._turn, self._proxy.limit(self.address.timeout if seconds is None else seconds):
            yield

    @contextlib.contextmanager
    def call(self, nbytes: int, hint: str = "it hangs") -> Iterator[None]:
        """Have the session alone, for calls that move so many bytes.

        Raises
        ------
        DeviceLost
            If they take too long, or the server is gone.
        RemoteError
            If they fail there; the session remains of use.
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
        """End it, so that the server is free for the next."""
        with self.turn():
            self._modules.clear()
            # TVM ends a session with the last object that refers to it: within the limit, as it says goodbye and may
            # hang.
            self._session = self.device = None
        self._proxy.close()


@contextlib.contextmanager
def _clear_frames() -> Iterator[None]:
    """Let an error keep nothing of the board, which would have to be given back to it later, without a limit."""
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
            self._sessions = [each for each in self._sessions if not each.ended]
            if not self._sessions:
                self._sessions.append(RpcSession(self._address))
            elif self._address.tracker and rpc_tracker.has_free_server(self._address):
                # Another process may be faster, or the server be gone: then a session is shared after all.
                with contextlib.suppress(DeviceLost):
                    self._sessions.append(RpcSession(self._address))
            # The one with fewest users: calls of one session take turns.
            session = min(self._sessions, key=lambda each: each.users)
            session.users += 1
            return session

    def has_better(self, session: RpcSession) -> bool:
        """Return true if a user of a shared session would get a server of its own; asked now and then only."""
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
        """Note that a session has a user less; the last one ends it."""
        with self._lock:
            session.users -= 1
            if session.users == 0:
                if session in self._sessions:
                    self._sessions.remove(session)
                # Under the lock too: whoever joins at this moment finds the server free.
                session.close()


_addresses: dict[Address, _Sessions] = {}


def join(address: Address) -> RpcSession:
    """Return the session with the server at an address, begun if there is none; `leave` it when it is of no more use.

    Raises
    ------
    DeviceLost
        If the server cannot be reached, or serves another process.
    """
    return _addresses.setdefault(address, _Sessions(address)).join()


def has_better(session: RpcSession) -> bool:
    """Return true if a user that leaves its session and joins again gets a server of its own; asks now and then."""
    return _addresses[session.address].has_better(session)


def leave(session: RpcSession) -> None:
    """Note that a session has one user less; it ends with the last one."""
    _addresses[session.address].leave(session)
