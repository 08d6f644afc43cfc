"""The verb load: a bundle becomes a running pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pipeline.core.plan.device_map import DeviceMap
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.options import PipelineKeywords
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.workflow.compile_on_demand import Maker


def load(  # noqa: PLR0913 - all but the first by keyword
    bundle: Bundle | str | Path,
    *,
    devices: DeviceMap | None = None,
    server: str = "",
    require_signature: str | Path | None = None,
    on_new_shape: str = "refuse",
    model: Any = None,
    params: Any = None,
    **options: Unpack[PipelineKeywords],
) -> Pipeline:
    """Return a running pipeline.

    Parameters
    ----------
    bundle : Bundle, str or Path
        A bundle, or the folder where one was saved.
    devices : mapping of str to (str or Device), optional
        Devices that stand for those of the plan, by their names there, such as
        ``{"gpu": "cuda:1", "board": "remote://127.0.0.1:9123/cpu"}``; they run the same code.
    server : str
        Address of servers that run the bundle as one program, such as ``"remote://board:9123/bundle"``, or of a pool of
        them: each frame takes one round trip, and all that is here is the bundle's manifest.
    require_signature : str or Path, optional
        A file of allowed signers, of whom one must have signed the folder's bundle; see docs/bundle.md.
    on_new_shape : str
        Treatment of frames of a size that the bundle has no build for.  ``"refuse"``: an error lists the sizes.
        ``"compile"``: a build is made from `model` in the background and kept on disk, while other frames go on.
    model : OpenModel, str or Path, optional
        Source of the bundle, for ``"compile"``.
    params : mapping, str or Path, optional
        Parameters of that model, as for `pipeline.read`.
    **options
        Options of `pipeline.Pipeline`, such as ``admission`` and ``trace``.

    Raises
    ------
    BundleError
        If the bundle is missing, damaged, not signed as required, or built for another kind of machine.
    PlanError
        If `model` is not what it was built from.
    BoardError
        If `devices` names one that the plan has not, or one that cannot run what was built.
    ArgumentError
        If `on_new_shape` is unknown, or does not go with the other arguments, or an option is none.
    """
    from pipeline.core import arguments
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline

    # A typing mistake is found before a bundle of gigabytes is read.
    arguments.choice("on_new_shape", on_new_shape, ("refuse", "compile"))
    if server:
        from pipeline.workflow.server_bundle import on_server

        if devices or on_new_shape != "refuse":
            raise ArgumentError("with server=, the servers choose devices and builds; leave out what else says them")
        code = on_server(bundle, server, require_signature)
    elif not isinstance(bundle, Bundle):
        code = Bundle.load(bundle, devices, require_signature=require_signature)
    elif require_signature is None:
        code = bundle.on_devices(devices or {})
    else:
        raise ArgumentError("require_signature is for the folder of a bundle; one in memory has no signature")
    build = _maker(code, model, params) if on_new_shape == "compile" else None
    return Pipeline(code, build=build, **options)


def _maker(bundle: Bundle, model: Any, params: Any) -> Maker:
    from pipeline.split.symbolic_model import OpenModel, open_model
    from pipeline.workflow.compile_on_demand import Maker

    if bundle.shapes is None:
        raise ArgumentError("on_new_shape='compile' needs a bundle that was built from a model with shapes that vary")
    if model is None:
        raise ArgumentError("on_new_shape='compile' needs the model that the bundle was built from: model=...")
    # With the names that the bundle was built with, so that sizes mean the same in both.
    return Maker(model if isinstance(model, OpenModel) else open_model(model, bundle.shapes.inputs, params), bundle)
