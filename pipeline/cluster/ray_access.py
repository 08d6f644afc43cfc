"""Ray access: joining and leaving a cluster, and translating errors."""

from __future__ import annotations

import contextlib
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import ArgumentError, DeviceLost, RemoteError, reason
from pipeline.remote.connection import ServerRefusal
from pipeline.system.optional import require

LOCAL, AUTO = "local", "auto"
CLIENT = "ray://"

_ANSWER_S = 5.0
"""Seconds for an answer, to tell a dead port from a slow one. Ray itself would try for half a minute."""


def load_ray() -> Any:
    """Return the module, or raise `MissingExtra`."""
    return require("ray", "ray", "a cluster of Ray")


@contextlib.contextmanager
def join_cluster(address: str) -> Iterator[None]:
    """Join a cluster during the block, unless already joined.

    The address ``"auto"`` is the cluster that runs on this machine, or that ``RAY_ADDRESS`` names; ``"local"`` a new
    one, of this machine; ``"ray://HOST:10001"`` one elsewhere, through its server for clients. Raises `DeviceLost` if
    there is none.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield
        return
    _await_answer(address)
    # Its client gives advice as warnings: of a connection that failed, which the error tells, and of large frames.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"ray\.util\.client")
    try:
        # Quiet: what replicas print, and Ray's own advice, would mix with what a stream writes to standard output.
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **_local_options(address))
    # It raises whatever its parts do: RuntimeError, ConnectionError, ValueError.
    except Exception as error:
        raise DeviceLost(_why_none(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raise `ArgumentError` if a text names no cluster."""
    if address in {LOCAL, AUTO}:
        return
    try:
        parts = urlsplit(address)
        is_whole = address.startswith(CLIENT) and parts.hostname and parts.port
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ArgumentError(f"{address!r} is no cluster; write it like {CLIENT}127.0.0.1:10001, {AUTO!r} or {LOCAL!r}")


def _await_answer(address: str) -> None:
    """Check for a listener at a known address."""
    endpoint = _running_cluster() if address == AUTO else address
    host, _, port = endpoint.removeprefix(CLIENT).strip("/").rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
            return
    except OSError as error:
        message = f"no cluster at {endpoint}: {error.strerror or error}; start one there with 'ray start --head'"
        raise DeviceLost(message) from error


def _running_cluster() -> str:
    """Return the address behind ``"auto"``, empty if unknown."""
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where Ray looks
    try:
        # Left there also by a cluster that was killed.
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _local_options(address: str) -> dict[str, Any]:
    return {"include_dashboard": False} if address == LOCAL else {}


def _why_none(address: str, error: Exception) -> str:
    if address == AUTO and isinstance(error, ConnectionError):
        return (
            "no cluster of Ray runs on this machine, or it does not let this process in; start one with 'ray start "
            "--head', or name it: ray://HOST:10001; one with a token needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here"
        )
    remedy = "one with a token needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here"
    return f"the cluster at {address} cannot be joined: {reason(error, line=0)}; {remedy}"


@contextlib.contextmanager
def translate_errors(title: str) -> Iterator[None]:
    """Translate Ray's actor errors to this project's.

    Raises `DeviceLost` if the actor, its node or a tensor is gone; `RemoteError` if the call raised an error there;
    `ServerRefusal` if the node cannot run actors of this project.

    `title`: actor's name in messages.
    """
    errors = load_ray().exceptions
    try:
        yield
    except errors.GetTimeoutError:
        raise
    except errors.RayTaskError as error:
        raise RemoteError(f"{title}: {reason(error.cause or error)}") from error
    except errors.RayActorError as error:
        text = str(error)
        # Before the constructor ran: the class itself is not there, or another one.
        if "failed to be imported" in text or "ModuleNotFoundError" in text:
            raise ServerRefusal(f"{title}: {_last_line(text)}; install this version of soc-pipeline there") from error
        raise DeviceLost(f"{title}: {_first_line(text)}") from error
    except (errors.RayError, ConnectionError) as error:
        raise DeviceLost(f"{title}: {_first_line(str(error))}") from error


def _first_line(text: str) -> str:
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "it is gone")


def _last_line(text: str) -> str:
    return next((line.strip().rstrip(".") for line in reversed(text.splitlines()) if line.strip()), "it is gone")
