"""Cluster options of streaming commands, and their meanings."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.commands.shared import values
from pipeline.errors import InputError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of replicas: place and number."""
    group = parser.add_argument_group("more than one machine")
    group.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="let replicas of the whole bundle compute the frames, on a cluster of Ray: ray://HOST:10001, auto (the "
        "one that runs on this machine) or local (a new one)",
    )
    group.add_argument(
        "--replicas",
        metavar="N",
        type=values.count_or_auto,
        default=values.AUTO,
        help="how many; auto (default) is as many as the nodes have room for, and follows them as they come and go",
    )
    group.add_argument(
        "--retry",
        metavar="N",
        type=values.natural,
        default=0,
        help="send a frame whose replica was lost up to N times more; it may be computed twice (default: it fails)",
    )


def load_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the cluster's options, none for local frames, or raise `InputError`."""
    if options.cluster is None:
        for name, default in (("replicas", values.AUTO), ("retry", 0)):
            if getattr(options, name) != default:
                raise InputError(f"--{name} is for a cluster; give --cluster ADDRESS as well, or leave it out")
        return {}
    for name in ("watch", "compile", "server"):
        if getattr(options, name):
            raise InputError(f"--{name} does not go with --cluster; leave one of them out")
    return {
        "address": options.cluster,
        "replicas": options.replicas,
        "retry": options.retry,
        "folder": options.bundle,
        "require_signature": options.require_signature,
        "devices": dict(options.device),
    }
