"""``soc-pipeline serve``: let other machines run stages on this one."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands import common
from pipeline.errors import BoardError, InputError
from pipeline.files import cache_folder

if TYPE_CHECKING:
    from pipeline.remote.store import Store

HELP = "Let pipelines on other machines run stages on this one, as the device remote://HOST:PORT/cpu."
EXAMPLE = "soc-pipeline serve --port 9123 --bundles bundles/"

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at (default: 127.0.0.1, reached from this machine and through SSH tunnels only)",
    )
    parser.add_argument("--port", metavar="N", default="9123", help="default: 9123; 0 takes a free one and says which")
    parser.add_argument(
        "--bundles", metavar="FOLDER", type=Path, help="stages of the bundles in this folder may be run; nothing else"
    )
    parser.add_argument(
        "--accept-uploads",
        action="store_true",
        help="run whatever stages clients send: everyone who can reach the port can run any code as this user",
    )
    parser.add_argument(
        "--uploads", metavar="FOLDER", type=Path, help="where to keep uploads (default: in ~/.cache/soc-pipeline)"
    )
    parser.add_argument("--cores", metavar="LIST", help="cores for the stages, such as 0,1 or 4-7 (default: all)")
    parser.add_argument("--sessions", metavar="N", default="32", help="clients at once (default: 32)")
    parser.add_argument(
        "--largest-frame", metavar="MB", default="1000", help="size of a stage's inputs or outputs (default: 1000)"
    )
    parser.add_argument("--json", action="store_true", help="say where it listens as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Listen until Ctrl-C or SIGTERM."""
    # Nothing is compiled here: the small runtime starts faster and needs less memory.
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    from pipeline.remote.computing import Computing
    from pipeline.remote.offer import Offer
    from pipeline.remote.server import Server

    cores = _cores(options.cores)
    largest = common.whole("--largest-frame", options.largest_frame) * 1_000_000
    sessions = common.whole("--sessions", options.sessions)
    offer = Offer(_store(options), Computing(cores), cores, largest)
    server = Server(options.host, _port(options.port), offer, sessions=sessions)
    try:
        _announce(options, server.port)
        server.serve()
    finally:
        server.close()
    return 0


def _store(options: argparse.Namespace) -> Store:
    from pipeline.remote.store import Store

    if options.bundles and not options.bundles.is_dir():
        raise InputError(f"--bundles {str(options.bundles)!r} is no folder; make it, and copy bundles into it")
    if options.uploads and not options.accept_uploads:
        raise InputError("--uploads needs --accept-uploads, without which nothing is uploaded")
    if not options.accept_uploads:
        return Store(options.bundles)
    if options.uploads:
        return Store(options.bundles, options.uploads)
    if (kept := cache_folder()) is None:
        raise InputError("there is no folder of this user's to keep uploads in; name one with --uploads")
    return Store(options.bundles, kept / "uploads")


def _announce(options: argparse.Namespace, port: int) -> None:
    if options.accept_uploads and options.host not in LOOPBACK:
        common.notice(f"everyone who can reach {options.host}:{port} can run any code as this user")
    elif not options.accept_uploads and not options.bundles:
        common.notice("no stage can be run that has code: give --bundles FOLDER, or --accept-uploads")
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"remote://{host}:{port}/cpu"
    if options.json:
        print(f'{{"address": "{address}", "port": {port}}}')
    else:
        print(f"Serving {address}; end with Ctrl-C")
    sys.stdout.flush()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise InputError(f"--port is {text!r}; it must be a port, or 0 for one that is free")
    return int(text)


def _cores(text: str | None) -> tuple[int, ...]:
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if text is None:
        return tuple(usable)
    try:
        chosen = [core for part in text.split(",") for core in _range(part)]
    except ValueError:
        raise InputError(f"--cores is {text!r}; write it like 0,1 or 4-7") from None
    if missing := set(chosen) - set(usable):
        raise BoardError(f"--cores: this process may not use core {min(missing)}; it may use {usable}")
    return tuple(dict.fromkeys(chosen))


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
