"""Plan: stages to build and stream, as an immutable value.

A plan is checked when it is made, so that nothing later meets an impossible one, and its JSON form is
exactly its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pipeline.core.board.board import Board
from pipeline.core.plan.joined_stages import join_stages
from pipeline.core.plan.plan_checks import check_limits, check_order, check_quantization, check_tensors
from pipeline.core.plan.plan_file import FORMAT, decode_plan, encode_plan
from pipeline.core.plan.plan_file_checks import check_cores, check_links, check_stage_order
from pipeline.core.plan.stage_options import StageOptions, rename_options
from pipeline.core.plan.stage_plan import StagePlan, StepPlan, TensorSpec
from pipeline.core.plan.stage_titles import stage_titles
from pipeline.core.plan.state import State, check_states
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import PlanError, near
from pipeline.system.files import check_regular, write_atomically

__all__ = ["FORMAT", "Plan", "StagePlan", "StepPlan", "TensorSpec", "decode", "encode"]


@dataclass(frozen=True)
class Plan:
    """An ordered set of stages on a board.

    Raises
    ------
    PlanError
        If the stages do not form a legal pipeline; the message names the stage and the tensor.
    """

    model: str
    """Name of the model."""
    digest: str
    """SHA-256 of the graph that the operators' names belong to; empty when there is no model."""
    board: Board
    """The devices in use."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    """Tensors that the caller gives and gets."""
    stages: tuple[StagePlan, ...]
    """Stages in order: each reads model inputs and outputs of earlier stages only."""
    in_flight: int = 0
    """Upper bound on frames inside. 0 chooses one per replica of each stage and one per place in its queue, and where
    replicas differ also those that must wait for the slowest one, since results leave in order."""
    unsplit_seconds: float = 0.0
    """Predicted time of one frame in the unsplit model on one core of the first stage's device."""
    measured: bool = False
    """True if the predicted times rest on measurements; False for estimates."""
    format: int = FORMAT
    unfused: tuple[str, ...] = ()
    """Operators behind which it cuts although the compiler would fuse what follows."""
    quantization: tuple[Quantization, ...] = ()
    """Quantisation of inputs and outputs whose integers stand for other numbers; known once the plan is built."""
    order: tuple[str, ...] = ()
    """Operators' names in the topological order that was cut; empty for the graph's own."""
    states: tuple[State, ...] = ()
    """Values that stages keep for each stream; they are not among `inputs`."""

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise PlanError(f"the plan has format {self.format}, but this version reads format {FORMAT}")
        check_tensors(self.board, self.all_inputs, self.outputs, self.stages)
        check_states(self.stages, self.states)
        check_limits(self.in_flight, self.frames_in_flight, self.unsplit_seconds)
        check_quantization(self.outputs, self.quantization)
        check_order(self.order)

    @property
    def all_inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs and states: what no stage of the same frame makes."""
        return (*self.inputs, *(state.input for state in self.states))

    @property
    def frames_in_flight(self) -> int:
        """The bound on frames inside, with the default filled in."""
        return self.in_flight or sum(stage.frames_at_work + stage.queue_depth for stage in self.stages)

    @property
    def units(self) -> tuple[StagePlan, ...]:
        """Units of the build in order: stages, or their steps."""
        return tuple(unit for stage in self.stages for unit in stage.units)

    def steps_plan(self, stage: StagePlan) -> Plan:
        """Return a stage's steps as a plan of their own."""
        return replace(
            self,
            inputs=stage.inputs,
            outputs=stage.outputs,
            stages=stage.units,
            in_flight=0,
            quantization=(),
            states=(),
        )

    def stage(self, name: str) -> StagePlan:
        """Return a stage by name, title, or position (``stage0``); `PlanError` lists the names."""
        names = [stage.name for stage in self.stages]
        aliases = (names, self.titles, [f"stage{number}" for number in range(len(names))])
        # Names first: another stage may be called as the title of one.
        stage = next((self.stages[known.index(name)] for known in aliases if name in known), None)
        if stage is None:
            raise PlanError(f"the plan has no stage {name!r}; it has {', '.join(names)}{near(name, names)}")
        return stage

    @property
    def titles(self) -> tuple[str, ...]:
        """A readable name of each stage, from its operators'."""
        return stage_titles(self.stages)

    def with_options(self, stage: str, **options: Any) -> Plan:
        """Return the plan with build options: ``with_options("stage1", precision="bfloat16")``.

        Parameters
        ----------
        stage : str
        **options
            Fields of `StageOptions`, such as ``precision``, ``tolerance`` and ``target``.

        Raises
        ------
        PlanError
            If there is no such stage or option, or a value cannot be.
        """
        old_stage, options = self.stage(stage), rename_options(options)
        names = [field.name for field in fields(StageOptions)]
        for name in options:
            if name not in names:
                raise PlanError(f"stages have no option {name!r}; there are {', '.join(names)}{near(name, names)}")
        new_stage = replace(old_stage, options=replace(old_stage.options, **options))
        return replace(
            self, stages=tuple(new_stage if candidate is old_stage else candidate for candidate in self.stages)
        )

    def complete_options(self, options: StageOptions) -> Plan:
        """Return the plan with build options for all stages, behind their own."""
        return replace(
            self, stages=tuple(replace(stage, options=stage.options.complete(options)) for stage in self.stages)
        )

    def join(
        self,
        first: str,
        last: str,
        *,
        device: str | None = None,
        cores: Sequence[int] | None = None,
        replicas: int = 1,
    ) -> Plan:
        """Return the plan with consecutive stages joined as steps.

        Parameters
        ----------
        first, last : str
            Names of the first and the last of these stages; the new one has the name of the first.
        device : str, optional
            The worker's own device; by default the first that has cores.
        cores : sequence of int, optional
            Host cores of its workers, shared out evenly; by default those that the stages on its own device had.
        replicas : int
            Number of workers, each on another frame; they take turns with borrowed devices.

        Raises
        ------
        PlanError
            If there is no such stage, `last` comes before `first`, or the new stage is not legal.
        """
        begin, end = (self.stages.index(self.stage(name)) for name in (first, last))
        if end < begin:
            raise PlanError(f"stage {last!r} comes before stage {first!r}; give the first one first")
        head, stages, tail = self.stages[:begin], self.stages[begin : end + 1], self.stages[end + 1 :]
        readers = {spec.name for spec in (*self.outputs, *(spec for stage in tail for spec in stage.inputs))}
        readers |= {state.output for state in self.states}
        joined = join_stages(self.board, stages, readers, device=device, cores=cores, replicas=replicas)
        return replace(self, stages=(*head, joined, *tail))

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, atomically.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        try:
            write_atomically(Path(path), encode(self))
        except OSError as error:
            raise PlanError(f"cannot write plan {str(path)!r}: {error.strerror}") from error

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan written by `save`.

        Raises
        ------
        PlanError
            If the file is missing, not a plan, of a newer format, or describes an impossible plan.
        """
        try:
            check_regular(Path(path))
            data = Path(path).read_bytes()
        except OSError as error:
            raise PlanError(
                f"cannot read plan {str(path)!r}: {error.strerror}; make one with 'soc-pipeline plan'"
            ) from None
        plan = decode(data, str(path))
        try:
            check_stage_order(plan.order, plan.units)
            check_cores(plan.board, plan.stages)
            check_links(plan.board, plan.outputs, plan.stages)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from None
        return plan


def encode(plan: Plan) -> bytes:
    """Return the plan as indented JSON."""
    return encode_plan(plan)


def decode(data: bytes, origin: str) -> Plan:
    """Return the plan in `data`; errors call it `origin`."""
    return decode_plan(data, origin, Plan)
