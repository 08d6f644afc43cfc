"""Address: machine and name of a remote device, with time limits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pipeline.errors import BoardError, near

EXAMPLES = {
    "remote": "remote://127.0.0.1:9123/cpu",
    "rpc": "rpc://127.0.0.1:9090/cpu",
    "local": "local:cpu",
    "pool": "pool:remote://10.0.0.2:9123/cpu,remote://10.0.0.3:9123/cpu or pool:cameras",
}
_TIMES = ("timeout", "patience", "limit")
POOL_TIMEOUT_S = 1.0
"""Default time limit in a pool, where another member takes over a lost frame."""

_KEY = r"[A-Za-z0-9_.-]+"
"""Pattern of a pool's name whose members announce themselves."""

_OPTIONS = {
    "pool": (*_TIMES, "tls", "via"),
    "remote": (*_TIMES, "tls"),
    "rpc": ("timeout", "patience", "tracker", "device", "key"),
    "local": (),
}


@dataclass(frozen=True)
class Address:
    """One device of another machine, or its ``local`` stand-in."""

    scheme: str
    """``"remote"`` (a server of ``soc-pipeline serve``), ``"rpc"`` (TVM's own server), ``"pool"`` (servers that share
    the frames) or ``"local"``."""
    host: str = ""
    port: int = 0
    """Host and port of the server, or of TVM's tracker."""
    device: str = "cpu"
    """Kind of the device there, such as ``"cpu"``."""
    timeout: float = 5.0
    """Seconds without a sign of life after which the other side counts as lost; for ``rpc``, which gives none while it
    computes, the longest that a call may take."""
    patience: float = 5.0
    """Seconds that frames wait for a lost server to come back, before they fail."""
    tracker: bool = False
    """True if `host` and `port` are those of a TVM tracker, which is asked for any server with `key`."""
    key: str = ""
    """Name of the board at TVM's server or tracker; for a pool, the name under which members announce themselves."""
    tls: str = ""
    """Folder of the server's certificate and of what this client shows; empty without encryption."""
    members: tuple[Address, ...] = ()
    """Members of a pool that lists them."""
    via: str = ""
    """Endpoint of Zenoh by which those are found that announce themselves; empty for those in the same network."""
    limit: float = 60.0
    """Seconds that a frame may take there, however often the server says that it is alive."""

    def __str__(self) -> str:
        if self.members:
            return f"pool:{','.join(map(str, self.members))}"
        if self.scheme == "pool":
            return f"pool:{self.key}/{self.device}"
        if self.scheme == "local":
            return f"local:{self.device}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.key if self.tracker else self.device}"


def parse(text: str) -> Address:
    """Return the address in a text like ``remote://board:9123/cpu?timeout=2``.

    Raises `BoardError` if it is none; the message has an example.
    """
    if text.startswith("pool:"):
        return _parse_pool(text)
    try:
        parts = urlsplit(text)
        port = parts.port or 0
    except ValueError as error:
        raise BoardError(f"{text!r} is not an address: {error}; write it like {EXAMPLES['remote']}") from None
    if parts.scheme not in EXAMPLES:
        raise BoardError(f"{text!r} is not an address: write it like {' or '.join(EXAMPLES.values())}")
    path = parts.path.strip("/")
    if not path or (parts.scheme != "local" and not (parts.hostname and port)) or "/" in path:
        raise BoardError(f"{text!r} is not a whole address; write it like {EXAMPLES[parts.scheme]}")
    options = _options(text, parts)
    name_on_server = {"key" if "tracker" in options else "device": path}
    return Address(parts.scheme, parts.hostname or "", port, **{**options, **name_on_server})


def preferred(addresses: str) -> Address:
    """Return the first address of alternatives or pool members."""
    address = alternatives(addresses)[0]
    return address.members[0] if address.members else address


def _parse_pool(text: str) -> Address:
    """Return a pool's address, its members listed or announced elsewhere."""
    members = []
    members_text = text.removeprefix("pool:")
    if "://" not in members_text.partition("?")[0]:
        return _parse_announced(text, members_text)
    for member_text in members_text.split(","):
        member = parse(member_text)
        # A tracker has members of its own.
        if member.scheme != "remote" and not (member.tracker and member_text == members_text):
            raise BoardError(f"{member_text!r} cannot be a member of a pool; write it like {EXAMPLES['pool']}")
        members.append(member if "timeout=" in member_text else replace(member, timeout=POOL_TIMEOUT_S))
    if kinds := {member.device for member in members} - {members[0].device}:
        raise BoardError(f"{text!r}: a pool has one kind of device, not {members[0].device!r} and {min(kinds)!r}")
    if len(set(members)) < len(members):
        raise BoardError(f"{text!r} names a member twice; name it once: it says itself how much it does at once")
    timeout, patience = (max(getattr(member, name) for member in members) for name in ("timeout", "patience"))
    return Address("pool", device=members[0].device, timeout=timeout, patience=patience, members=tuple(members))


def _parse_announced(text: str, location: str) -> Address:
    """Return the address of a pool announced under a key."""
    parts = urlsplit(location)
    key, _, device = parts.path.partition("/")
    if not re.fullmatch(_KEY, key) or "/" in device or not re.fullmatch(_KEY, device or "cpu"):
        raise BoardError(f"{text!r} is not a pool; write it like {EXAMPLES['pool']}")
    options = {"timeout": POOL_TIMEOUT_S, **_options(text, parts._replace(scheme="pool"))}
    return Address("pool", device=device or "cpu", key=key, **options)


def alternatives(addresses: str) -> tuple[Address, ...]:
    """Return the alternatives in a text, the preferred one first."""
    return tuple(parse(address) for address in addresses.split())


def _options(text: str, parts: SplitResult) -> dict[str, Any]:
    names, options = _OPTIONS[parts.scheme], {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in names:
            there_are = f"there are {', '.join(names)}" if names else "it takes none"
            raise BoardError(f"{text!r} has the option {name!r}; {there_are}{near(name, names)}")
        if name == "tls" and not value:
            raise BoardError(f"{text!r}: tls names the folder with the server's certificate, as in '?tls=keys/board'")
        options[name] = _seconds(text, name, value) if name in _TIMES else name == "tracker" or value
    return options


def _seconds(text: str, name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf or (seconds == 0 and name == "patience")):
        raise BoardError(f"{text!r}: {name} is {value!r}; it must be seconds above 0")
    return seconds
