#!/usr/bin/env python3
"""Writes golden.json next to this file: a small byte-level BPE vocabulary of Hugging Face's tokenizers, texts as hexadecimal
bytes, and their tokens. Run it with a Python that has tokenizers; the C++ tests only read the file.

With the arguments "classes FILE" it writes the tables of trainer/tokens/character_classes.cpp instead: the class of each
character according to that library's pattern."""

import json
import pathlib
import sys
import tempfile

import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = [
    b"", b"The agent starts the workers, and it's what they'll see: I've 12 of 34.5!", b"  two spaces, \t tab\n\n\nlines  \n end  ", b"   ", b" ", b"\r\n\r\n x",
    "Grüße aus Köln — naïve façade, 東京 2026年, Привет мир, हिन्दी, ١٢٣, Ⅷ½²".encode(), "\u00a0nbsp\u2003em\u3000wide\u0085nel\u200bzero".encode(), "🙂👍🏽 e\u0301 \U0001d54f".encode(),
    b"don't DON'T 'tis ''s 're're '", b"x" * 300 + b" " * 70 + b"=" * 100, b"ab\xff\xfecd", b"\xe2\x82", b"\xe2\x82A\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xf0\x9f\x99", bytes(range(256)),
    b"a<|endoftext|>b <|end|><|endoftext|>", b"snake_case_name = f(x)[3] // comment",
]


def trained(folder):
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
        written = {"vocabulary": vocabulary, "merges": merges, "tokenizer": json.loads(with_space.to_str()), "texts": []}
        for text in TEXTS:
            decoded = text.decode(errors="replace")
            written["texts"].append({"text": text.hex(), "plain": plain.encode(decoded).ids, "with_space": with_space.encode(decoded, add_special_tokens=False).ids})
    (HERE / "golden.json").write_text(json.dumps(written, separators=(",", ":")).replace("},", "},\n") + "\n")


def classes(file):
    """Writes the class of each character. The class follows from the way in which the library splits ".", the character and
    "a"."""
    cut = ByteLevel(add_prefix_space=False).pre_tokenize_str
    found = {"kLetter": [], "kNumber": [], "kSpace": []}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or code == ord(" "):
            continue
        pieces = [end - begin for _, (begin, end) in cut(f".{chr(code)}a")]
        kind = {(1, 2): "kLetter", (1, 1, 1): None, (2, 1): "kOther"}[tuple(pieces)]
        if kind is None:  # a number or a space: before ".", the library splits two spaces, but not two numbers
            kind = "kSpace" if [end - begin for _, (begin, end) in cut(f"{chr(code)}{chr(code)}.")] == [1, 1, 1] else "kNumber"
        if kind in found:
            ranges = found[kind]
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    # The loop skips the space character, which the library puts into one piece with the next character.
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


if __name__ == "__main__":
    classes(sys.argv[2]) if sys.argv[1:2] == ["classes"] else golden()
