"""ELF: undefined symbols of shared libraries."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_DYNAMIC_SYMBOLS, _SYMBOL_VERSIONS, _NEEDED_VERSIONS = 11, 0x6FFFFFFF, 0x6FFFFFFE
"""Types of sections: SHT_DYNSYM, SHT_GNU_versym and SHT_GNU_verneed."""

_GLOBAL = 1
"""Binding of a required symbol; weak ones may be missing."""


class _Section(NamedTuple):
    type: int
    offset: int
    size: int
    link: int


def undefined_symbols(content: bytes) -> dict[str, str]:
    """Return a library's undefined symbols with versions, such as ``{"memcpy": "GLIBC_2.4", "erff": ""}``.

    A version is empty where the linker has not seen the library (``erff``). Weak symbols are left out; what is no ELF
    file needs nothing.
    """
    if content[:4] != b"\x7fELF":
        return {}
    is_wide, order = content[4] == 2, "<" if content[5] == 1 else ">"
    sections = list(_sections(content, order, is_wide=is_wide))
    by_type = {section.type: section for section in sections}
    if (table := by_type.get(_DYNAMIC_SYMBOLS)) is None:
        return {}
    versions, numbers = _version_names(content, order, sections), by_type.get(_SYMBOL_VERSIONS)
    form = struct.Struct(order + ("IBBHQQ" if is_wide else "IIIBBH"))
    symbols = {}
    for position, fields in enumerate(form.iter_unpack(content[table.offset : table.offset + table.size])):
        name, info, section_index = (fields[0], fields[1], fields[3]) if is_wide else (fields[0], fields[3], fields[5])
        if section_index == 0 and info >> 4 == _GLOBAL:
            number = struct.unpack_from(order + "H", content, numbers.offset + 2 * position)[0] if numbers else 0
            symbols[_text(content, sections[table.link], name)] = versions.get(number & 0x7FFF, "")
    return symbols


def _sections(content: bytes, order: str, *, is_wide: bool) -> Iterator[_Section]:
    (start,) = struct.unpack_from(order + ("Q" if is_wide else "I"), content, 0x28 if is_wide else 0x20)
    size, count = struct.unpack_from(order + "HH", content, 0x3A if is_wide else 0x2E)
    for number in range(count):
        form = order + ("4x I 16x QQ I" if is_wide else "4x I 8x II I")
        yield _Section(*struct.unpack_from(form, content, start + number * size))


def _version_names(content: bytes, order: str, sections: list[_Section]) -> dict[int, str]:
    names: dict[int, str] = {}
    for section in sections:
        library = section.offset
        while section.type == _NEEDED_VERSIONS:
            count, first, following = struct.unpack_from(order + "2x H 4x II", content, library)
            version = library + first
            for _ in range(count):
                number, name, step = struct.unpack_from(order + "6x H II", content, version)
                names[number] = _text(content, sections[section.link], name)
                version += step
            if following == 0:
                break
            library += following
    return names


def _text(content: bytes, strings: _Section, offset: int) -> str:
    start = strings.offset + offset
    return content[start : content.index(0, start)].decode()
