"""Server bundle: all stages on servers, one round trip per frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.core import remote_address
from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import replicas_on
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.core.shapes import Build
from pipeline.errors import BoardError, BundleError
from pipeline.executor.bundle import Bundle
from pipeline.executor.bundle_description import describe_bundle
from pipeline.measure.server_slots import ask_slots
from pipeline.remote.served_bundle import BUNDLE, BundleVersion

DEVICE = "server"
"""Name of the device that stands for the servers."""


def on_server(bundle: Bundle | str | Path, address: str, require_signature: str | Path | None = None) -> Bundle:
    """Return a one-stage bundle for another on a server or pool, such as ``remote://board:9123/bundle``.

    Only the bundle's manifest is read, so that it may be built for another kind of machine; one of the allowed signers
    in the file `require_signature` must have signed it, as for `pipeline.load`. Raises `BoardError` if it is no such
    address; `BundleError` if the bundle is missing or damaged.
    """
    for server in remote_address.alternatives(address):
        if server.scheme not in {"remote", "pool"} or server.device != BUNDLE:
            raise BoardError(f"{server} runs no whole bundle; write it like remote://127.0.0.1:9123/{BUNDLE}")
    full = bundle if isinstance(bundle, Bundle) else describe_bundle(bundle, require_signature)
    if full.plan.states:
        raise BundleError(
            f"the bundle of {full.plan.model!r} keeps state for each stream, which a server of whole bundles does not "
            "tell apart; serve its stages"
        )
    # Asked once, also for many sizes.
    board = ask_slots(Board(DEVICE, (Device(DEVICE, "remote", address=address, memory=DEVICE),)))
    codes = (BundleVersion(full.checksum),)
    builds = [Build(_one_stage(build.plan, board), codes, build.symbolic) for build in full.builds]
    return Bundle(builds[0].plan, builds[0].codes, shapes=full.shapes, more=builds[1:], card=full.card)


def _one_stage(plan: Plan, board: Board) -> Plan:
    device = board.devices[0]
    # Of a server that is away, as many as its stages have workers.
    slots = device.slots or sum(stage.replicas for stage in plan.stages)
    stage = StagePlan(
        BUNDLE,
        device.name,
        plan.inputs,
        plan.outputs,
        # A frame is inside for so long; others are as well.
        seconds=sum(stage.seconds for stage in plan.stages),
        replicas=replicas_on(device, slots),
    )
    board = replace(board, devices=(replace(device, slots=slots),))
    return replace(plan, board=board, stages=(stage,), in_flight=0)
