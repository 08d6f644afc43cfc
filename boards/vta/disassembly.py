"""Instructions and micro-ops as text, one per line, and as plain values."""

from __future__ import annotations

from boards.vta.config import Config, Memory
from boards.vta.instructions import Alu, Gemm, Instruction, Load, Stage, Store, Uop
from boards.vta.layout import fields

_WIDTH_OF_NAME = 14
_NONE = "outside"


def line(config: Config, index: int, instruction: Instruction) -> str:
    """Return an instruction with its index and the module that executes it."""
    return f"{index:6}  {instruction.stage.name.lower():7}  {text(config, instruction)}".rstrip()


def text(config: Config, instruction: Instruction) -> str:
    """Return what an instruction does, and its dependences behind it."""
    words = [_name(instruction).ljust(_WIDTH_OF_NAME), _operands(config, instruction), _dependences(instruction)]
    return "  ".join(word for word in words if word).rstrip()


def uop_line(index: int, uop: Uop) -> str:
    """Return a micro-op with its index."""
    return f"{index:6}  UOP      dst {uop.dst_idx}  src {uop.src_idx}  wgt {uop.wgt_idx}"


def facts(config: Config, index: int, instruction: Instruction) -> dict[str, object]:
    """Return an instruction as plain values: its index, its module, and every field by name."""
    values = {field.name: _plain(getattr(instruction, field.name)) for field in fields(config, instruction.opcode)}
    return {"index": index, "module": instruction.stage.name.lower(), **values}


def _plain(value: object) -> object:
    return getattr(value, "name", value)


def _name(instruction: Instruction) -> str:
    name = instruction.opcode.name
    if isinstance(instruction, Load | Store):
        return f"{name} {instruction.memory_type.name}"
    if isinstance(instruction, Alu):
        return f"{name} {instruction.alu_opcode.name}{' imm' if instruction.use_imm else ''}"
    return f"{name} reset" if isinstance(instruction, Gemm) and instruction.reset_reg else name


def _operands(config: Config, instruction: Instruction) -> str:
    if isinstance(instruction, Load | Store):
        return _transfer(config, instruction)
    return _loops(instruction) if isinstance(instruction, Gemm | Alu) else ""


def _transfer(config: Config, each: Load | Store) -> str:
    if not (each.width and each.height):
        return "nothing"
    unit = config.element_bytes(Memory.OUT if isinstance(each, Store) else each.memory_type)
    words = [
        f"sram {each.sram_base}..{each.sram_base + each.width * each.height}",
        f"dram {each.dram_base:#x} (byte {each.dram_base * unit:#x})",
        f"rows {each.y_size} x {each.x_size}  stride {each.x_stride}",
    ]
    if each.padded:
        words.append(f"pad rows {each.y_pad_0},{each.y_pad_1} columns {each.x_pad_0},{each.x_pad_1}")
    return "  ".join(words)


def _loops(each: Gemm | Alu) -> str:
    words = [
        f"uop {each.uop_bgn}..{each.uop_end}",
        f"iter {each.iter_out} x {each.iter_in}",
        f"dst +{each.dst_factor_out},{each.dst_factor_in}",
    ]
    if not (isinstance(each, Alu) and each.use_imm):
        words.append(f"src +{each.src_factor_out},{each.src_factor_in}")
    if isinstance(each, Gemm):
        words.append(f"wgt +{each.wgt_factor_out},{each.wgt_factor_in}")
    elif each.use_imm:
        words.append(f"imm {each.imm}")
    return "  ".join(words)


def _dependences(instruction: Instruction) -> str:
    stage = instruction.stage
    flags = [
        ("pop", instruction.pop_prev, stage - 1),
        ("pop", instruction.pop_next, stage + 1),
        ("push", instruction.push_prev, stage - 1),
        ("push", instruction.push_next, stage + 1),
    ]
    return "  ".join(f"[{verb} {_neighbour(other)}]" for verb, present, other in flags if present)


def _neighbour(number: int) -> str:
    return Stage(number).name.lower() if number in list(Stage) else _NONE
