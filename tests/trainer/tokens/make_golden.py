#!/usr/bin/env python3
"""Writes golden.json next to this file: a small byte-level BPE vocabulary of the library tokenizers of Hugging Face, texts as
hexadecimal bytes, and their tokens. Run this script with a Python that has tokenizers. The C++ tests only read the file.

With the arguments "classes FILE" it writes the tables of trainer/tokens/character_classes.cpp instead: the class of each
character according to the pattern of that library. With "normalization FOLDER" it writes decompositions.cpp and
combining_classes.cpp of trainer/tokens, the tables of the normalization form NFC according to that library."""

import json
import pathlib
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = [
    b"", b"The agent starts the workers, and it's what they'll see: I've 12 of 34.5!", b"  two spaces, \t tab\n\n\nlines  \n end  ", b"   ", b" ", b"\r\n\r\n x",
    "Grüße aus Köln — naïve façade, 東京 2026年, Привет мир, हिन्दी, ١٢٣, Ⅷ½²".encode(), "\u00a0nbsp\u2003em\u3000wide\u0085nel\u200bzero".encode(), "🙂👍🏽 e\u0301 \U0001d54f".encode(),
    b"don't DON'T 'tis ''s 're're '", b"x" * 300 + b" " * 70 + b"=" * 100, b"ab\xff\xfecd", b"\xe2\x82", b"\xe2\x82A\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xf0\x9f\x99", bytes(range(256)),
    b"a<|endoftext|>b <|end|><|endoftext|>", b"snake_case_name = f(x)[3] // comment",
]


# Texts for the patterns of Llama 3 and Qwen2, and for the normalization of Qwen2.
TEXTS += [
    "I'LL they'Ve 'S '\u017f ''s 1234567 12 ١٢٣٤ x1 $abc _def !!ghi  jkl\tmno".encode(), b"a\r\n\r\n  b\n \t\n  c  \n", b"!?\n\nx ...\r\ny  !\n", b"\n \n a\n\n\n", b" 1  2   3 \n4",
    "e\u0301 \u00e9 q\u0323\u0307 q\u0307\u0323 \u212b \u2126 \u1100\u1161\u11a8 \uac01 \u0958 \ufb2c \u0344 \u1e9b\u0323 <|end|>e\u0301<|end|>".encode(), "\u0301\u0300a\u0300\u0300 \u0323".encode(),
]
LLAMA3, QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+" for digits in (r"\p{N}{1,3}", r"\p{N}"))


def tokenizer_of(plain, pattern, normalizer=None, ignore_merges=False):
    """Returns the same vocabulary with the word pattern of another model, as in the tokenizer.json of that model."""
    json_text = json.loads(plain.to_str())
    json_text["model"]["ignore_merges"] = ignore_merges
    made = tokenizers.Tokenizer.from_str(json.dumps(json_text))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    made.add_special_tokens(["<|endoftext|>", "<|end|>"])
    return made


def trained(folder):
    """Writes the vocabulary of an existing golden.json, or trains a new vocabulary. An existing vocabulary is kept, because
    the docs that are the training text may have changed, and the tokens would change too."""
    if (HERE / "golden.json").exists():
        written = json.loads((HERE / "golden.json").read_text())
        (folder / "vocab.json").write_text(json.dumps(written["vocabulary"]))
        (folder / "merges.txt").write_text(written["merges"])
        return written["vocabulary"], written["merges"]
    docs = [str(page) for page in sorted((HERE.parents[2] / "docs").glob("*.md"))][:6]
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train(docs, vocab_size=420, min_frequency=2, show_progress=False)
    tokenizer.save_model(str(folder))
    return json.loads((folder / "vocab.json").read_text()), (folder / "merges.txt").read_text()


def golden():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        vocabulary, merges = trained(folder)
        plain = tokenizers.ByteLevelBPETokenizer.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        with_space = tokenizers.Tokenizer.from_str(plain.to_str())
        with_space.pre_tokenizer = ByteLevel(add_prefix_space=True)
        with_space.add_special_tokens(["<|endoftext|>", "<|end|>"])
        other_words = {"llama3": tokenizer_of(plain, LLAMA3, ignore_merges=True), "qwen2": tokenizer_of(plain, QWEN2, normalizer=normalizers.NFC())}
        written = {"vocabulary": vocabulary, "merges": merges, "tokenizer": json.loads(with_space.to_str()), "texts": [],
                   "other_words": {name: {key: value for key, value in json.loads(other.to_str()).items() if key in ("normalizer", "pre_tokenizer", "added_tokens")}
                                   for name, other in other_words.items()}}
        for text in TEXTS:
            decoded = text.decode(errors="replace")
            written["texts"].append({"text": text.hex(), "plain": plain.encode(decoded).ids, "with_space": with_space.encode(decoded, add_special_tokens=False).ids,
                                     **{name: other.encode(decoded, add_special_tokens=False).ids for name, other in other_words.items()}})
    (HERE / "golden.json").write_text(json.dumps(written, separators=(",", ":")).replace("},", "},\n") + "\n")


def classes(file):
    """Writes the class of each character. To find the class, the library splits a text of three characters: ".", the character
    itself, and "a"."""
    cut = ByteLevel(add_prefix_space=False).pre_tokenize_str
    found = {"kLetter": [], "kNumber": [], "kSpace": []}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or code == ord(" "):
            continue
        pieces = [end - begin for _, (begin, end) in cut(f".{chr(code)}a")]
        kind = {(1, 2): "kLetter", (1, 1, 1): None, (2, 1): "kOther"}[tuple(pieces)]
        # the character is a number or a space: before ".", the library splits two spaces, but not two numbers
        if kind is None:
            kind = "kSpace" if [end - begin for _, (begin, end) in cut(f"{chr(code)}{chr(code)}.")] == [1, 1, 1] else "kNumber"
        if kind in found:
            ranges = found[kind]
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    # The loop skips the space character, because the library does not split it from the next character.
    found["kSpace"].insert(1, [0x20, 0x20])
    lines = []
    for kind, ranges in found.items():
        lines.append(f"constexpr std::array<Range, {len(ranges)}> {kind}s{{{{")
        row = "   "
        for first, last in ranges:
            entry = f" {{0x{first:X}, 0x{last:X}}},"
            if len(row) + len(entry) > 126:
                lines.append(row)
                row = "   "
            row += entry
        lines += [row.rstrip(","), "}};", ""]
    pathlib.Path(file).write_text("\n".join(lines))


def rows_of(entries):
    """Joins entries into lines of at most 126 characters."""
    rows = ["   "]
    for entry in entries:
        if len(rows[-1]) + len(entry) + 2 > 126:
            rows.append("   ")
        rows[-1] += f" {entry},"
    return "\n".join(rows).rstrip(",")


def class_of(code, decompose):
    """Returns the combining class from Python's module unicodedata, or 0 if the Unicode version of the library does not sort
    the character."""
    mark, number = chr(code), unicodedata.combining(chr(code))
    pair = mark + "\u0334" if number > 1 else "\u0301" + mark  # U+0334 has the class 1, and U+0301 has the class 230
    return number if number and decompose("a" + pair) != "a" + pair else 0


def normalization(folder):
    decompose, compose = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    codes = [code for code in range(0x30000) if not 0xD800 <= code < 0xE000 and not 0xAC00 <= code < 0xD7A4]
    entries, excluded, ranges = [], [], []
    for code in codes:
        whole = decompose(chr(code))
        if whole != chr(code):
            parts = [chr(int(part, 16)) for part in unicodedata.decomposition(chr(code)).split()]
            if not parts or parts[0].startswith("<"):  # a character that this Python does not know
                parts = [compose(whole[:-1]), whole[-1]] if len(whole) > 1 else [whole]
            assert len(parts) in (1, 2) and all(len(part) == 1 for part in parts), hex(code)
            entries.append(f"{{0x{code:X}, 0x{ord(parts[0]):X}, {f'0x{ord(parts[1]):X}' if len(parts) == 2 else '0'}}}")
            if len(parts) == 2 and compose(whole) != chr(code):
                excluded.append(f"0x{code:X}")
        number = class_of(code, decompose)
        if number and ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == number:
            ranges[-1][1] = code
        elif number:
            ranges.append([code, code, number])
    top = """#include <algorithm>
#include <array>

#include "trainer/tokens/unicode_tables.hpp"

namespace ddprun::trainer {
namespace {

"""
    pathlib.Path(folder, "decompositions.cpp").write_text(f"""// Decompositions of unicode_tables.hpp. `tests/trainer/tokens/make_golden.py normalization` generates this file.
//
// Note [Why this file is long]
// It is one table of Unicode.
{top}// clang-format off
constexpr std::array<Decomposition, {len(entries)}> kDecompositions{{{{
{rows_of(entries)}
}}}};

constexpr std::array<char32_t, {len(excluded)}> kUncomposed{{
{rows_of(excluded)}
}};
// clang-format on

}}  // namespace

std::span<const Decomposition> decompositions() {{
  return kDecompositions;
}}

std::span<const char32_t> uncomposed_characters() {{
  return kUncomposed;
}}

}}  // namespace ddprun::trainer
""".replace("#include <algorithm>\n", ""))
    pathlib.Path(folder, "combining_classes.cpp").write_text(f"""// Combining classes of unicode_tables.hpp. `tests/trainer/tokens/make_golden.py normalization` generates this file.
{top}struct ClassRange {{
  char32_t first;
  char32_t last;
  std::uint8_t number;
}};

// clang-format off
constexpr std::array<ClassRange, {len(ranges)}> kClassRanges{{{{
{rows_of(f"{{0x{first:X}, 0x{last:X}, {number}}}" for first, last, number in ranges)}
}}}};
// clang-format on

}}  // namespace

std::uint8_t combining_class(char32_t code) {{
  const auto next = std::ranges::upper_bound(kClassRanges, code, {{}}, &ClassRange::first);
  if (next == kClassRanges.begin()) return 0;
  const ClassRange& range = *(next - 1);
  return code <= range.last ? range.number : 0;
}}

}}  // namespace ddprun::trainer
""")


if __name__ == "__main__":
    if sys.argv[1:2] == ["classes"]:
        classes(sys.argv[2])
    elif sys.argv[1:2] == ["normalization"]:
        normalization(sys.argv[2])
    else:
        golden()
