"""Cluster loader: a bundle becomes a pipeline computed by replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cluster.bundle_parts import BundleParts, describe_parts, read_parts
from pipeline.cluster.cluster_pipeline import ClusterPipeline
from pipeline.cluster.cluster_plan import ClusterBundle, cluster_bundle, split_bundle
from pipeline.cluster.fleet import Fleet, FleetOptions
from pipeline.cluster.ray_access import AUTO, check_address, join_cluster, load_ray
from pipeline.cluster.replica import ReplicaOrder
from pipeline.cluster.replica_notes import ReplicaNotes
from pipeline.cluster.requirement import Requirement, check_nodes, count_replicas, derive_requirement
from pipeline.core import arguments
from pipeline.core.plan.device_map import DeviceMap
from pipeline.errors import ArgumentError
from pipeline.executor.bundle import Bundle
from pipeline.scheduler.options import PipelineOptions, Supervision

_OF_FLEET = ("retry", "in_flight", "timeout", "patience")


def load(  # noqa: PLR0913 - all but the first by keyword
    bundle: Bundle | str | Path,
    *,
    address: str = AUTO,
    replicas: int | str = AUTO,
    cpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    devices: DeviceMap | None = None,
    require_signature: str | Path | None = None,
    folder: str | Path | None = None,
    **options: Any,
) -> ClusterPipeline:
    """Return a running pipeline with a bundle's replicas on a Ray cluster.

    It returns when the first replica is ready; others take frames as soon as they are.

    Parameters
    ----------
    bundle : Bundle, str or Path
        A bundle, or the folder where one was saved.  Nodes get it once, by its checksum.  Functions in front of its
        stages stay on this machine.
    address : str
        ``"auto"``, ``"local"`` or ``"ray://HOST:10001"``; see `pipeline.cluster.ray_access.join_cluster`.
    replicas : int or str
        Replicas; ``"auto"`` follows the nodes, as they come and go.
    cpus : float, optional
        Cores of each, by default those that its stages compute on.
    resources : mapping of str to float, optional
        Ray's custom resources of each, by default ``board:NAME`` and ``device:KIND`` as its plan says.
    devices : mapping of str to (str or Device), optional
        Devices of the nodes that stand for those of the plan.
    require_signature : str or Path, optional
        A file of allowed signers, of whom one must have signed the folder's bundle.
    folder : str or Path, optional
        Folder of the saved bundle that replicas load, if `bundle` is that one with functions in front.
    **options
        ``retry``, ``in_flight``, ``timeout`` and ``patience`` as for `FleetOptions`; all others as for
        `pipeline.Pipeline`.

    Raises
    ------
    ArgumentError
        If an option is none, or `address` names no cluster.
    MissingExtra
        If Ray is not installed.
    DeviceLost
        If there is no such cluster, or no replica became ready.
    BoardError
        If no node has what a replica needs.
    BundleError
        If the bundle is missing, damaged, or not signed as required.
    """
    # 1. Check the options, and divide them: those of replicas, of their fleet, and of the pipeline here.
    if replicas != AUTO:
        arguments.count("replicas", replicas, 1)
    fleet_options = _fleet_options({name: options.pop(name) for name in _OF_FLEET if name in options})
    settings = PipelineOptions.of(**options)
    supervision = settings.supervision
    # Limits are about the bundle's stages, and so for the replicas; a failed frame is for the pipeline here.
    order_options = {"supervision": Supervision(timeouts=supervision.timeouts, on_timeout=supervision.on_timeout)}
    here = {name: value for name, value in options.items() if name not in ("stage_timeout", "on_timeout", "on_error")}
    here["supervision"] = Supervision(supervision.on_error)
    check_address(address)
    load_ray()
    # 2. Divide the bundle: functions in front of its stages stay here.
    saved = _read_saved(bundle, folder, require_signature)
    description = None if saved is None else describe_parts(saved)
    code = bundle if isinstance(bundle, Bundle) else description
    assert code is not None  # noqa: S101 - what is no bundle in memory has a folder
    part, functions = split_bundle(code, description)
    parts = read_parts(part) if saved is None else saved
    requirement = derive_requirement(part.on_devices(devices or {}).plan, cpus, resources)
    # 3. Join the cluster, and start replicas on the nodes that have what they need.
    membership = contextlib.ExitStack()
    with contextlib.ExitStack() as undo:
        undo.callback(membership.close)
        membership.enter_context(join_cluster(address))
        nodes = load_ray().nodes
        check_nodes(nodes(), requirement)
        count = max(1, count_replicas(nodes(), requirement)) if replicas == AUTO else int(replicas)
        notes = ReplicaNotes(part.plan, settings.trace)
        order = ReplicaOrder(parts.digest, dict(devices or {}), order_options)
        fleet = Fleet(part.plan, parts, order, requirement, fleet_options, notes)
        membership.callback(fleet.close)

        def arrange(workers: int) -> ClusterBundle:
            # Live streams want the newest frame, not one that has waited in line.
            return cluster_bundle(code, part, functions, workers, 1 if settings.admission.drops else workers)

        # 4. Run; the pipeline leaves the cluster when it is closed.
        follow = partial(_count, requirement) if replicas == AUTO else None
        running = ClusterPipeline(arrange, fleet, membership, count, follow, **here)
        undo.pop_all()
        return running


def _count(requirement: Requirement) -> int:
    return count_replicas(load_ray().nodes(), requirement)


def _read_saved(
    bundle: Bundle | str | Path, folder: str | Path | None, require_signature: str | Path | None
) -> BundleParts | None:
    """Return the bundle folder's files for replicas; None in memory only."""
    if not isinstance(bundle, Bundle):
        if folder is not None:
            raise ArgumentError("folder is for a bundle in memory; give the path of one of them")
        folder = bundle
    if folder is not None:
        return read_parts(Path(folder), None if require_signature is None else Path(require_signature))
    if require_signature is not None:
        raise ArgumentError("require_signature is for the folder of a bundle; one in memory has no signature")
    return None


def _fleet_options(options: Mapping[str, Any]) -> FleetOptions:
    for name, minimum in (("retry", 0), ("in_flight", 0)):
        if name in options:
            arguments.count(name, options[name], minimum)
    for name in ("timeout", "patience"):
        if name in options:
            arguments.duration(name, options[name])
    return FleetOptions(**options)
