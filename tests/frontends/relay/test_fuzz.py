"""Damaged programs end in one of our own errors, soon, and without much memory."""

from __future__ import annotations

import random
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from hypothesis import strategies

from pipeline.errors import ModelError
from pipeline.frontends import relay
from pipeline.frontends.relay import json_form, parser
from tests.support.relay_programs import HEADER

OWN = f"""{HEADER}
def @f(%x: Tensor[(1, 8), float32], Inline=1) -> Tensor[(1, 8), float32] {{ %0 = add(%x, 1f); nn.relu(%0) }}
def @main(%a: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(8, 4, 3, 3), float32], %n: Tensor[(?, 3), int8]) {{
  %0 = nn.conv2d(%a, %w, strides=[2, 2], padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]) /* ty=(x) */;
  let %pool: Tensor[(1, 8, 1, 1), float32] = nn.adaptive_avg_pool2d(%0, output_size=[1]);
  %1 = reshape(%pool, newshape=[0, -3, -2]);
  %2 = squeeze(%1, axis=[2]);
  %3 = if (less(1f, 2f)) {{ @f(%2) }} else {{ %2 }};
  %4 = topk(%3, k=2, axis=-1, is_ascend=False);
  %5 = (%4.0, qnn.quantize(%3, 0.5f, -3, out_dtype="int8"));
  %6 = qnn.requantize(%5.1, 0.5f, 0, 0.25f, 1i64, out_dtype="uint8");
  (%5, strided_slice(%6, begin=[0, 1], end=[1, -1], strides=[1]), take(%3, 5 /* ty=int64 */), %n)
}}"""

# fmt: off
WORDS = [
    "(", ")", "[", "]", "{", "}", ",", ";", ":", "=", ".", "->", "%0", "%x", "%99", "@f", "@main", "let", "if", "else",
    "fn", "def", "meta[relay.Constant][0]", "None", "True", "-1", "0", "1", "2", "1000000", "99999999999999999999",
    "1e30f", "nanf", "inff", "0.5f", "3i8", "-5i64", "Tensor[(2), bool]", "?", "/*", "//", "#[", ".0", ".7", "axis=5",
    "axis=[0]", "strides=[0]", "groups=3", "newshape=[-1]", "shape=[100000, 100000]", "+", "-", "*", "/", "reshape",
    "concatenate", "split", "nn.dense", "transpose", "cast", "clip", "nn.max_pool2d", "image.resize2d", "sort",
    "argmax", "where", "zeros", "gather", "full", "nn.batch_norm", "divide", '"int8"', '"NHWC"', '"float64"', '"', "\0",
    "\u00e9",
]
# fmt: on
NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100000",
    "4294967296",
    "9223372036854775807",
    "99999999999999999999",
    "0.5",
    "x",
    "",
)

Mutate = Callable[[random.Random, str], str]


def place(generator: random.Random, text: str) -> tuple[int, int]:
    start = generator.randrange(len(text) + 1)
    return start, min(len(text), start + generator.choice((1, 1, 2, 5, 20, 200)))


def delete_part(generator: random.Random, text: str) -> str:
    start, end = place(generator, text)
    return text[:start] + text[end:]


def repeat_part(generator: random.Random, text: str) -> str:
    start, end = place(generator, text)
    return text[:end] + text[start:end] * generator.choice((1, 2, 50)) + text[end:]


def move_part(generator: random.Random, text: str) -> str:
    start, end = place(generator, text)
    remainder, target = text[:start] + text[end:], generator.randrange(len(text) - (end - start) + 1)
    return remainder[:target] + text[start:end] + remainder[target:]


def overwrite_character(generator: random.Random, text: str) -> str:
    start, _ = place(generator, text)
    return text[:start] + chr(generator.choice((0, 10, 34, 37, 40, 48, 57, 92, 123, 255, 0x1F600))) + text[start + 1 :]


def with_a_word(generator: random.Random, text: str) -> str:
    start, _ = place(generator, text)
    return text[:start] + generator.choice(WORDS) + text[start:]


def with_another(pattern: str, choices: tuple[str, ...] | list[str]) -> Mutate:
    """Replace one of the places where `pattern` fits."""

    def mutate(generator: random.Random, text: str) -> str:
        output = list(re.finditer(pattern, text))
        if not output:
            return text
        choice = generator.choice(output)
        return text[: choice.start()] + generator.choice(choices) + text[choice.end() :]

    return mutate


def cut(generator: random.Random, text: str) -> str:
    return text[: generator.randrange(len(text) + 1)]


MUTATIONS: tuple[Mutate, ...] = (
    delete_part,
    repeat_part,
    move_part,
    overwrite_character,
    with_a_word,
    with_another(r"-?\d+", NUMBERS),
    with_another(r"-?\d+", NUMBERS),
    with_another(r"%\w+", ["%0", "%x", "%1", "%a", "%99"]),
    with_another(r"\b[a-z_.0-9]+(?=\()", [word for word in WORDS if re.fullmatch(r"[a-z_.0-9]+", word)]),
    with_another(r"\w+(?==)", ["axis", "newshape", "strides", "k", "dtype", "shape"]),
    with_another(
        r'"(?:relay|runtime)?\.?[A-Z]\w+"',
        ['"Array"', '"Map"', '"relay.Call"', '"relay.Let"', '"Op"', '""', '"IntImm"'],
    ),
    with_another(r"\[[^][]*\]", ["[]", "[0]", "[1, 1, 1, 1, 1, 1, 1, 1]", "[-1]", "[1, [2]]", "[100000, 100000]"]),
    cut,
)


def mutate_text(seed: int, text: str) -> str:
    generator = random.Random(seed)
    for _ in range(generator.choice((1, 1, 2, 3, 8))):
        text = generator.choice(MUTATIONS)(generator, text)
    return text


def assert_survives(read: Callable[[str], object], text: str, seconds: float = 20) -> bool:
    """Read a text that may be damaged; return whether it was refused."""
    start = time.perf_counter()
    try:
        read(text)
    except ModelError as error:
        assert str(error)  # noqa: PT017 - what matters is that no other type is raised
        return True
    else:
        return False
    finally:
        assert time.perf_counter() - start < seconds


def parse_text(text: str) -> object:
    return relay_parse(text, "fuzz.relay")


def relay_parse(text: str, file: str) -> object:
    parse = json_form.parse if text.lstrip().startswith("{") else parser.parse
    try:
        return parse(text, file)
    except RecursionError:
        pytest.fail("the parser's own bound on nesting should have come first")


def convert(text: str) -> object:
    return relay.read(text, "fuzz.relay", "fuzz", {}, {})


def runs(originals: dict[str, str], count: int) -> Iterator[str]:
    texts = list(originals.values())
    return (mutate_text(seed, texts[seed % len(texts)]) for seed in range(count))


def test_own_program_is_whole() -> None:
    assert_survives(parse_text, OWN)
    # With its batch, which it leaves open, as 1.
    convert(OWN)
    convert(OWN.replace("(?, 3)", "(2, 3)"))


def test_mutations_of_an_own_program() -> None:
    text = OWN.replace("(?, 3)", "(2, 3)")
    refusals = sum(assert_survives(convert, mutate_text(seed, text)) for seed in range(300))
    assert 100 < refusals < 300


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(strategies.lists(strategies.sampled_from(WORDS), max_size=30))
def test_words_in_any_order(words: list[str]) -> None:
    assert_survives(convert, f"{HEADER}def @main(%x: Tensor[(2, 3), float32]) {{ {' '.join(words)} }}")


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(strategies.text(max_size=60))
def test_any_text(text: str) -> None:
    assert_survives(parse_text, text)
    assert_survives(parse_text, HEADER + text)


def test_damaged_programs_need_little_memory() -> None:
    texts = list(runs({"own": OWN}, 100))
    tracemalloc.start()
    try:
        for text in texts:
            assert_survives(parse_text, text)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
