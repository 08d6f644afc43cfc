"""Instructions and micro-ops as text lines and as plain values."""

from __future__ import annotations

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.instructions import Alu, Gemm, HardwareModule, Instruction, LoadInstruction, StoreInstruction, Uop
from boards.vta.isa.layout import fields

# As long as "STORE ACC_8BIT", so that operands begin in one column.
_WIDTH_OF_NAME = 14
# A flag of load or store that points beyond the modules: wrong, but it can be encoded.
_NONE = "outside"


def line(config: Config, index: int, instruction: Instruction) -> str:
    """Return an instruction as text, with index and module."""
    return f"{index:6}  {instruction.module.name.lower():7}  {text(config, instruction)}".rstrip()


def text(config: Config, instruction: Instruction) -> str:
    """Describe an instruction, with its dependences behind it."""
    words = [_name(instruction).ljust(_WIDTH_OF_NAME), _operands(config, instruction), _dependences(instruction)]
    return "  ".join(word for word in words if word).rstrip()


def uop_line(index: int, uop: Uop) -> str:
    """Return a micro-op with its index."""
    return f"{index:6}  UOP      dst {uop.dst_idx}  src {uop.src_idx}  wgt {uop.wgt_idx}"


def facts(config: Config, index: int, instruction: Instruction) -> dict[str, object]:
    """Return an instruction as plain values: index, module, fields."""
    values = {field.name: _plain(getattr(instruction, field.name)) for field in fields(config, instruction.opcode)}
    return {"index": index, "module": instruction.module.name.lower(), **values}


def _plain(value: object) -> object:
    return getattr(value, "name", value)


def _name(instruction: Instruction) -> str:
    name = instruction.opcode.name
    if isinstance(instruction, LoadInstruction | StoreInstruction):
        return f"{name} {instruction.memory_type.name}"
    if isinstance(instruction, Alu):
        return f"{name} {instruction.alu_opcode.name}{' imm' if instruction.use_imm else ''}"
    return f"{name} reset" if isinstance(instruction, Gemm) and instruction.reset_reg else name


def _operands(config: Config, instruction: Instruction) -> str:
    if isinstance(instruction, LoadInstruction | StoreInstruction):
        return _transfer(config, instruction)
    return _loops(instruction) if isinstance(instruction, Gemm | Alu) else ""


def _transfer(config: Config, instruction: LoadInstruction | StoreInstruction) -> str:
    # As in every stream: such a transfer only passes tokens on.
    if not (instruction.width and instruction.height):
        return "nothing"
    unit = config.element_bytes(
        MemoryType.OUT if isinstance(instruction, StoreInstruction) else instruction.memory_type
    )
    words = [
        f"sram {instruction.sram_base}..{instruction.sram_base + instruction.width * instruction.height}",
        f"dram {instruction.dram_base:#x} (byte {instruction.dram_base * unit:#x})",
        f"rows {instruction.y_size} x {instruction.x_size}  stride {instruction.x_stride}",
    ]
    if instruction.padded:
        words.append(
            f"pad rows {instruction.y_pad_0},{instruction.y_pad_1} columns {instruction.x_pad_0},{instruction.x_pad_1}"
        )
    return "  ".join(words)


def _loops(instruction: Gemm | Alu) -> str:
    words = [
        f"uop {instruction.uop_bgn}..{instruction.uop_end}",
        f"iter {instruction.iter_out} x {instruction.iter_in}",
        f"dst +{instruction.dst_factor_out},{instruction.dst_factor_in}",
    ]
    # An immediate replaces the source, whose factors then mean nothing.
    if not (isinstance(instruction, Alu) and instruction.use_imm):
        words.append(f"src +{instruction.src_factor_out},{instruction.src_factor_in}")
    if isinstance(instruction, Gemm):
        words.append(f"wgt +{instruction.wgt_factor_out},{instruction.wgt_factor_in}")
    elif instruction.use_imm:
        words.append(f"imm {instruction.imm}")
    return "  ".join(words)


def _dependences(instruction: Instruction) -> str:
    module = instruction.module
    flags = [
        ("pop", instruction.pop_prev, module - 1),
        ("pop", instruction.pop_next, module + 1),
        ("push", instruction.push_prev, module - 1),
        ("push", instruction.push_next, module + 1),
    ]
    return "  ".join(f"[{verb} {_neighbour(neighbour)}]" for verb, present, neighbour in flags if present)


def _neighbour(number: int) -> str:
    return HardwareModule(number).name.lower() if number in list(HardwareModule) else _NONE
