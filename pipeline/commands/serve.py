"""``soc-pipeline serve``: let other machines run stages on this one."""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, updates, values
from pipeline.errors import BoardError, InputError
from pipeline.system.affinity import process_cores
from pipeline.system.files import cache_folder
from pipeline.system.service_manager import ready_service

if TYPE_CHECKING:
    import numpy as np

    from pipeline.remote.served_bundle import OfferedBundle
    from pipeline.remote.store import FileStore

HELP = "Let pipelines on other machines run stages on this one, as the device remote://HOST:PORT/cpu."
EXAMPLE = "soc-pipeline serve --port 9123 --bundles bundles/"

# Addresses that only this machine reaches, where a warning would be noise.
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    _listening_arguments(parser)
    _stage_arguments(parser)
    _trust_arguments(parser)
    _capacity_arguments(parser)
    updates.arguments(parser)
    parser.add_argument("--json", action="store_true", help="say where it listens as one line of JSON")


def _listening_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at (default: 127.0.0.1, reached from this machine and through SSH tunnels only)",
    )
    parser.add_argument(
        "--port", metavar="N", type=values.port, default=9123, help="default: 9123; 0 takes a free one and says which"
    )
    parser.add_argument(
        "--announce",
        metavar="KEY",
        help="be a member of the pool of this name, pool:KEY, for all who meet this machine by Zenoh; "
        "KEY?via=tcp/HOST:7447 meets them at an endpoint",
    )


def _stage_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bundles", metavar="FOLDER", type=Path, help="stages of the bundles in this folder may be run; nothing else"
    )
    parser.add_argument(
        "--uploads", metavar="FOLDER", type=Path, help="where to keep uploads (default: in ~/.cache/soc-pipeline)"
    )
    parser.add_argument(
        "--run",
        dest="bundle",
        metavar="BUNDLE",
        type=Path,
        help="run this bundle as one program, whose frames take one round trip: the device remote://HOST:PORT/bundle",
    )


def _trust_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-uploads",
        action="store_true",
        help="run whatever stages clients send: everyone who can reach the port can run any code as this user",
    )
    parser.add_argument(
        "--require-signature",
        metavar="ALLOWED",
        type=Path,
        help="run only stages of bundles that somebody in this file of OpenSSH's allowed signers has signed",
    )
    parser.add_argument(
        "--tls",
        metavar="DIR",
        type=Path,
        help="encrypt, with the certificate, the key and the token in this folder; only clients that show the token, "
        "or a certificate, are let in",
    )
    parser.add_argument(
        "--init-tls", metavar="DIR", type=Path, help="make that folder, say what clients need of it, and end"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond this machine without --tls: everyone who can reach the port is let in",
    )


def _capacity_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cores",
        metavar="LIST",
        type=values.cores,
        help="cores for the stages, such as 0,1 or 4-7 (default: all)",
    )
    parser.add_argument(
        "--slots",
        metavar="N",
        type=values.count,
        help="stages that run at once, each on an even share of the cores (default: one on each core)",
    )
    parser.add_argument(
        "--sessions", metavar="N", type=values.count, help="clients at once (default: 32, or 4 for each slot)"
    )
    parser.add_argument(
        "--largest-frame",
        metavar="MB",
        type=values.count,
        default=1000,
        help="size of a stage's inputs or outputs (default: 1000)",
    )


def run(options: argparse.Namespace) -> int:
    """Listen until Ctrl-C or SIGTERM."""
    if options.init_tls:
        return _create_credentials(options)
    _check_exposure(options)
    if options.watch and not options.bundle:
        raise InputError("--watch takes new versions of the bundle that --run names; give both")
    updates.check_folder(options)
    from pipeline.remote.device_threads import ServerDevices
    from pipeline.remote.offer import Offer
    from pipeline.remote.server import Server
    from pipeline.remote.tls import ServerTls
    from pipeline.scheduler.switch_interval import UNKNOWN, SwitchInterval

    # Before the port is opened: nobody should connect to a server that cannot start.
    cores = _cores(options.cores)
    computing = ServerDevices(cores, slots=options.slots)
    offer = Offer(_store(options), computing, cores, options.largest_frame * 1_000_000)
    tls = ServerTls(options.tls) if options.tls else None
    with _running_bundle(options) as bundle:
        # A stage that uses all slots has two sessions in each.
        sessions = options.sessions or max(32, 4 * max(computing.slots, bundle.slots if bundle else 0))
        server = Server(options.host, options.port, replace(offer, bundle=bundle), sessions=sessions, tls=tls)
        # Messages are read and written beside the stages, whose times only clients know.
        interval = SwitchInterval(UNKNOWN)
        try:
            with _announcing(options, server.port), ready_service():
                _announce(options, server.port)
                server.serve()
        finally:
            interval.end()
            server.close()
    return 0


def _announcing(options: argparse.Namespace, port: int) -> contextlib.AbstractContextManager[None]:
    """Join a pool while the result is open."""
    if options.announce is None:
        return contextlib.nullcontext()
    from pipeline.remote.zenoh_members import announce_server, parse_announcement

    return announce_server(parse_announcement(options.announce), options.host, port)


@contextlib.contextmanager
def _running_bundle(options: argparse.Namespace) -> Iterator[OfferedBundle | None]:
    """Yield the bundle run as one program, updating it meanwhile."""
    if options.bundle is None:
        yield None
        return
    import pipeline
    from pipeline.executor.bundle import Bundle
    from pipeline.remote.served_bundle import OfferedBundle
    from pipeline.scheduler.switch_interval import choose_interval

    def load(path: Path) -> Bundle:
        return Bundle.load(path, require_signature=options.require_signature)

    versions = updates.Updates(options, load)
    bundle = versions.load_first(options.bundle)
    names = [spec.name for spec in bundle.plan.inputs]
    with pipeline.load(bundle, switch_interval=choose_interval(bundle.plan)) as running:

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            outputs = running.submit(dict(zip(names, arrays, strict=True)), copy=False).outputs()
            return [outputs[spec.name] for spec in bundle.plan.outputs]

        with versions.watch(running, bundle):
            yield OfferedBundle(bundle.plan, compute, lambda: running.checksum)


def _create_credentials(options: argparse.Namespace) -> int:
    from pipeline.remote.credentials import CLIENT_FOLDER, create_credentials

    folder = options.init_tls
    create_credentials(folder, () if options.host in LOOPBACK else (options.host,))
    print(
        f"Serve with:    soc-pipeline serve --host ADDRESS --tls {folder}\n"
        f"Copy {folder / CLIENT_FOLDER} to each client, for its user alone, and connect to:\n"
        f"               remote://{socket.gethostname()}:{options.port}/cpu?tls=DIR"
    )
    return 0


def _check_exposure(options: argparse.Namespace) -> None:
    if options.host in LOOPBACK or options.tls or options.insecure:
        return
    raise InputError(
        f"--host {options.host} lets other machines in, and nothing would tell friends from strangers: give --tls DIR "
        "(--init-tls DIR makes it), or listen on loopback and use SSH tunnels; --insecure lets everybody in"
    )


def _store(options: argparse.Namespace) -> FileStore:
    from pipeline.executor.signature import check_allowed
    from pipeline.remote.store import FileStore

    if options.bundles and not options.bundles.is_dir():
        raise InputError(f"--bundles {str(options.bundles)!r} is no folder; make it, and copy bundles into it")
    if options.uploads and not options.accept_uploads:
        raise InputError("--uploads needs --accept-uploads, without which nothing is uploaded")
    allowed = options.require_signature
    if allowed:
        check_allowed(allowed)
    if not options.accept_uploads:
        return FileStore(options.bundles, allowed=allowed)
    if options.uploads:
        return FileStore(options.bundles, options.uploads, allowed=allowed)
    if (user_cache := cache_folder()) is None:
        raise InputError("there is no folder of this user's to keep uploads in; name one with --uploads")
    return FileStore(options.bundles, user_cache / "uploads", allowed=allowed)


def _announce(options: argparse.Namespace, port: int) -> None:
    if options.accept_uploads and options.host not in LOOPBACK and not options.tls and not options.require_signature:
        console.notice(f"everyone who can reach {options.host}:{port} can run any code as this user")
    elif not options.accept_uploads and not options.bundles and not options.bundle:
        console.notice("no stage can be run that has code: give --bundles FOLDER, or --accept-uploads")
    # IPv6 addresses have colons of their own.
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"remote://{host}:{port}/{'bundle' if options.bundle else 'cpu'}"
    if options.json:
        print(f'{{"address": "{address}", "port": {port}}}')
    else:
        print(f"Serving {address}{'?tls=DIR' if options.tls else ''}; end with Ctrl-C")
    # Whoever started this process reads the port from its output, which may be a pipe.
    sys.stdout.flush()


def _cores(ranges: Sequence[range] | None) -> tuple[int, ...]:
    usable = list(process_cores())
    if ranges is None:
        return tuple(usable)
    # A range is compared before it is written out: its end may be any number.
    if unusable := [core for cores in ranges if cores for core in (cores[0], cores[-1]) if core not in usable]:
        raise BoardError(f"--cores: this process may not use core {min(unusable)}; it may use {usable}")
    cores = [core for part in ranges for core in part]
    if unusable := sorted(set(cores) - set(usable)):
        raise BoardError(f"--cores: this process may not use core {unusable[0]}; it may use {usable}")
    # Ranges may overlap.
    return tuple(dict.fromkeys(cores))
