"""Shape checks of a manifest: every build is a size of the model."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import PlanError


def check_shapes(shapes: OpenShapes | None, builds: Sequence[Build]) -> None:
    """Raise `PlanError` or `InputError` on builds of other models or sizes."""
    first, *other_plans = (build.plan for build in builds)
    for plan in other_plans:
        for side in ("inputs", "outputs"):
            _check_alike(side, getattr(first, side), getattr(plan, side))
        if [unit.name for unit in plan.units] != [unit.name for unit in first.units]:
            raise PlanError("the builds for several sizes have other stages")
    if shapes is None:
        if other_plans:
            raise PlanError("there are builds for several sizes, but nothing that varies")
        return
    _check_names(shapes, first)
    for build in builds:
        if not build.symbolic:
            # It raises for extents that are no size of the shapes; a symbolic build stands for all of them.
            shapes.size({spec.name: spec.shape for spec in build.plan.inputs})


def _check_alike(side: str, first: tuple[TensorSpec, ...], second: tuple[TensorSpec, ...]) -> None:
    # Extents are what differs from size to size.
    kinds = [[(spec.name, spec.dtype, len(spec.shape)) for spec in specs] for specs in (first, second)]
    if kinds[0] != kinds[1]:
        raise PlanError(f"the builds for several sizes have other {side}")


def _check_names(shapes: OpenShapes, plan: Plan) -> None:
    if set(shapes.inputs) != {spec.name for spec in plan.inputs}:
        raise PlanError("the shapes that vary are not those of the inputs")
    ranks = {spec.name: len(spec.shape) for spec in plan.outputs}
    for name, axes in shapes.padded.items():
        if ranks.get(name) != len(axes) or any(factor and factor[0] not in shapes.names for factor in axes):
            raise PlanError(f"the shape of the output {name!r} does not follow from what varies")
        if any(factor and factor[1] < 1 for factor in axes):
            raise PlanError(f"an extent of the output {name!r} is no multiple of what varies")
