"""Tests of BPE vocabularies. Models train on text with a vocabulary, `ddptrain tokenize` writes token files with it, and
models generate text with it. The tokens must equal the tokens of the library tokenizers of Hugging Face. tests/trainer/tokens
compares more texts, which are stored in a file."""

import json
import pathlib
import random
import struct

import jobs
import pytest
from test_generate import generated

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "tests/trainer/tokens/golden.json").read_text(encoding="utf-8"))
TEXT = b"".join(page.read_bytes() for page in sorted((ROOT / "docs").glob("*.md")))


@pytest.fixture
def vocabulary(tmp_path) -> pathlib.Path:
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(GOLDEN["vocabulary"]), encoding="utf-8")
    (folder / "merges.txt").write_text(GOLDEN["merges"], encoding="utf-8")
    return folder


def tokens_in(file: pathlib.Path, magic: int = 20240520, version: int = 1, kind: str = "H") -> list[int]:
    content = file.read_bytes()
    header = struct.unpack("<256i", content[:1024])
    tokens = [token for token, in struct.iter_unpack(f"<{kind}", content[1024:])]
    assert header == (magic, version, len(tokens), *[0] * 253)
    return tokens


def config(tmp_path, **data) -> pathlib.Path:
    (tmp_path / "train.txt").write_bytes(TEXT[:20000])
    (tmp_path / "val.txt").write_bytes(TEXT[-4000:])
    return jobs.write_config(tmp_path / "train.json", jobs.config(
        tmp_path, model={"type": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 32}, batch_size=16, epochs=1, max_steps=3, optimizer={"type": "adamw", "lr": 0.01},
        data={"type": "tokens", "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": 16, "vocab_size": 420, "tokenizer": "vocabulary", **data}))


def test_text_and_its_token_file_train_equally(ddprun_bin, ddptrain_bin, vocabulary, tmp_path):
    train = config(tmp_path)
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "text", train])
    assert done.returncode == 0, done.stderr
    for split in ("train", "val"):
        made = jobs.run([ddptrain_bin, "tokenize", vocabulary, tmp_path / f"{split}.txt", tmp_path / f"{split}.bin"])
        size = (tmp_path / f"{split}.txt").stat().st_size
        assert made.returncode == 0 and made.stdout == (f"{size} bytes of text are {len(tokens_in(tmp_path / f'{split}.bin'))} tokens (vocabulary size 420), written to "
                                                        f"{tmp_path}/{split}.bin\n"), made.stderr
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "tokens", train, "data.train_tokens=train.bin", "data.test_tokens=val.bin"])
    assert again.returncode == 0, again.stderr
    assert jobs.weights_digest(tmp_path / "text") == jobs.weights_digest(tmp_path / "tokens")
    [text] = [entry for entry in GOLDEN["texts"] if bytes.fromhex(entry["text"]).startswith(b"The agent")]
    for run in ("text", "tokens"):
        found = generated(ddptrain_bin, tmp_path / run, "--prompt", bytes.fromhex(text["text"]).decode(), "--max-tokens", 5)
        assert found["prompt_tokens"] == text["plain"] and len(found["tokens"]) == 5
        assert found["text"].encode().startswith(bytes.fromhex(text["text"]))


def test_large_vocabularies_use_32_bit_tokens(ddptrain_bin, vocabulary, tmp_path):
    many = json.loads((vocabulary / "vocab.json").read_text()) | {f"<{i}>": i for i in range(420, 65537)}
    (vocabulary / "vocab.json").write_text(json.dumps(many), encoding="utf-8")
    (tmp_path / "a.txt").write_bytes(b"The agent")
    made = jobs.run([ddptrain_bin, "tokenize", vocabulary, tmp_path / "a.txt", tmp_path / "a.bin"])
    assert made.returncode == 0, made.stderr
    assert tokens_in(tmp_path / "a.bin", 20240801, 7, "I")


@pytest.mark.parametrize("changes,words", [
    (("data.vocab_size=400",), "has 420 tokens, but data.vocab_size is 400; both must be equal"),
    (("data.tokenizer=none",), "none: cannot be mapped: No such file or directory"),
    (("data.token_type=int8",), '(/data/token_type)'),
])
def test_invalid_tokenizers_are_refused(ddprun_bin, ddptrain_bin, vocabulary, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", config(tmp_path), *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("arguments,words", [
    (["V", "a.txt", "a.tokens"], "a.tokens: expected an output file *.bin, such as train.bin: training would read a file with another ending as text"),
    (["V", "none.txt", "a.bin"], "none.txt: cannot be mapped"),
    (["a.txt", "a.txt", "a.bin"], "a.txt: is not valid JSON (it has a syntax error at byte 2 of 4)"),
    (["V"], "text is required"),
])
def test_an_unwritable_token_file(ddptrain_bin, vocabulary, tmp_path, arguments, words):
    (tmp_path / "a.txt").write_bytes(b"text")
    done = jobs.run([ddptrain_bin, "tokenize", *(vocabulary if argument == "V" else argument for argument in arguments)], cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr


LLAMA3 = GOLDEN["other_words"]["llama3"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
QWEN2 = GOLDEN["other_words"]["qwen2"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]


@pytest.mark.long
@pytest.mark.parametrize("words", ["gpt2", "llama3", "qwen2"])
def test_tokens_match_hugging_face(ddptrain_bin, tmp_path, words):
    """The vocabulary is trained on texts that Debian installs. The test tokenizes 1 MB of text, every Unicode character, and
    bytes that are not UTF-8."""
    tokenizers = pytest.importorskip("tokenizers")
    texts = [file for file in sorted(pathlib.Path("/usr/share/common-licenses").iterdir()) if file.is_file()]
    text = b"".join(file.read_bytes() for file in texts)
    (tmp_path / "corpus.txt").write_bytes(text)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train([str(tmp_path / "corpus.txt")], vocab_size=5000, show_progress=False)
    tokenizer.save_model(str(tmp_path))
    if words != "gpt2":
        tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
        tokenizer.normalizer = tokenizers.normalizers.NFC() if words == "qwen2" else None
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3 if words == "llama3" else QWEN2), "isolated")
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.save(str(tmp_path / "whole.json"))
    draw = random.Random(1)
    print("seed 1")
    broken = bytearray(((text + TEXT) * (1 + 1_000_000 // len(text + TEXT)))[:1_000_000])
    for _ in range(20_000):
        broken[draw.randrange(len(broken))] = draw.randrange(256)
    marks = [chr(code) for code in (*range(0x300, 0x370), *range(0x93C, 0x94E), *range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), 0x1D165, 0x1D16D)]
    samples = {"text": (text + TEXT) * (1 + 1_000_000 // len(text + TEXT)), "broken": bytes(broken), "chance": draw.randbytes(300_000),
               "all": "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000).encode(),
               "spread": "".join(f".{chr(code)}a{chr(code)}{chr(code)} " for code in range(0x30000) if not 0xD800 <= code < 0xE000).encode(),
               "marks": "".join(draw.choice([draw.choice("aeo \u0105\u1eb9\uac00"), draw.choice(marks), draw.choice(marks)]) for _ in range(100_000)).encode(),
               "classes": "".join(draw.choice(" \t\r\n'sStTlL1a!.\u017f\u00a0\u0661") for _ in range(200_000)).encode()}
    for name, sample in samples.items():
        expected = tokenizer.encode(sample.decode(errors="replace")).ids
        (tmp_path / "sample.txt").write_bytes(sample)
        for source in (tmp_path, tmp_path / "whole.json") if words == "gpt2" else (tmp_path / "whole.json",):
            done = jobs.run([ddptrain_bin, "tokenize", source, tmp_path / "sample.txt", tmp_path / "sample.bin"])
            assert done.returncode == 0, done.stderr
            assert tokens_in(tmp_path / "sample.bin") == expected, name
