"""Picture code: the kernels that make pictures a model's input, in a bundle or of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from pipeline.core.board.board import Device
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.core.picture_layout import layout
from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, MissingExtra
from pipeline.executor.picture_tables import PLANES, PictureForm
from pipeline.executor.stage_code import StageCode

_compiled: dict[str, Any] = {}
_lock = threading.Lock()


def compile_pictures(form: PictureForm, device: Device | None = None, formats: Iterable[str] = PLANES) -> StageCode:
    """Compile the kernels of a form for a processor, by default this machine's."""
    from pipeline.executor import host_target, kernels
    from pipeline.executor.kernels import picture
    from pipeline.system.native_output import quietly
    from pipeline.tvm.access import compiler_lock

    with compiler_lock:
        target = kernels.target_for(host_target.target(None if device is None else device.target))
        executable = quietly(lambda: picture.build_executable(form, formats, target))
        machine, features = host_target.needs(target)
    return StageCode(executable.jit, {}, executable=executable, machine=machine, features=features)


def compile_for_bundle(plan: Plan, card: ModelCard | None) -> StageCode | None:
    """Compile what pictures for a plan's input need, or return None if it takes none."""
    rules = card.preparation if card is not None and card.preparation is not None else Preparation()
    # They are prepared where Python runs: on the board's own processor.
    devices = [device for device in plan.board.devices if device.capabilities.is_processor]
    if len(plan.inputs) != 1 or not devices or (devices[0].target or {}).get("kind", "llvm") != "llvm":
        return None
    try:
        form = PictureForm.of(layout(plan.inputs[0], rules.layout), plan.inputs[0].dtype)
        return _compile_library(form, devices[0])
    # Another input, or a board that has no compiler.
    except (InputError, MissingExtra):
        return None


def _compile_library(form: PictureForm, device: Device) -> StageCode:
    """Return the linked kernels of a form, which are kept for later bundles."""
    from pipeline.executor import build, compile_cache, stage_cache
    from pipeline.system.native_output import quietly

    key = compile_cache.key_of("pictures", form, str(build.target_of(device)))
    if (kept := stage_cache.find(key)) is not None:
        return kept
    code = compile_pictures(form, device)
    library = quietly(lambda: build.link_executable(code.executable, code.machine))
    code = stage_cache.linked(library, {}, machine=code.machine, features=code.features)
    stage_cache.keep(key, code)
    return code


def find_kernel(code: StageCode | None, form: PictureForm, pixel_format: str) -> Any:
    """Return the kernel for a format of pixels, a bundle's or one compiled here.

    Raises `MissingExtra` if the bundle has none, and there is no compiler.
    """
    name = form.kernel(pixel_format)
    if code is not None and (function := _function(code.module(), name)) is not None:
        return function
    with _lock:
        if name not in _compiled:
            try:
                _compiled[name] = compile_pictures(form, formats=[pixel_format])
            except MissingExtra as error:
                raise MissingExtra(
                    f"the bundle has no kernel for pictures of {pixel_format}; build it again with this version, or "
                    f"compile one here: {error}"
                ) from None
        return _function(_compiled[name].module(), name)


def _function(module: Any, name: str) -> Any:
    from pipeline.tvm.runtime import registry_lock

    with registry_lock:
        return module[name] if module.implements_function(name) else None
