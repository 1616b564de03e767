"""Writes text/train.txt and text/val.txt: sentences such as "the small cat sees a ball.", one per line, in random order."""

import pathlib
import random

ARTICLES, KINDS = ["the", "a"], ["small", "old", "happy", "red"]
THINGS, ACTS = ["cat", "dog", "bird", "child", "ball"], ["sees", "likes", "finds", "follows"]


def sentence(chance: random.Random) -> str:
    def thing() -> str:
        kind = [chance.choice(KINDS)] if chance.random() < 0.5 else []
        return " ".join([chance.choice(ARTICLES), *kind, chance.choice(THINGS)])

    return f"{thing()} {chance.choice(ACTS)} {thing()}.\n"


pathlib.Path("text").mkdir(exist_ok=True)
for name, lines in (("train", 4000), ("val", 200)):
    chance = random.Random(name)
    pathlib.Path(f"text/{name}.txt").write_text("".join(sentence(chance) for _ in range(lines)), encoding="utf-8")
