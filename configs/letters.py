#!/usr/bin/env python3
"""Draws the letters and digits of this machine's fonts, and writes them as the images of letters.json and digits.json.

Needs Pillow (Debian: python3-pil). Training and test images come from different families of fonts. The same fonts give the same images.
"""

import argparse
import pathlib
import random
import string
import sys

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError:
    sys.exit("letters.py: Pillow is missing; install Debian's python3-pil, or the package pillow with pip")

SIDE = 40  # pixels of a letter's image; letters.json scales it to 36 and crops 32
CIFAR_SIDE = 32
MISSING = "\U0010fffe"  # no font has this character, so it is drawn as the placeholder of the font
FEWEST = 2  # required families of fonts; every fifth family is used for the test images


def has_all(path: pathlib.Path, signs: str) -> bool:
    """True if the font has a different image for each sign."""
    try:
        font = ImageFont.truetype(path, 40)
        drawn = [bytes(font.getmask(sign)) for sign in signs + MISSING]
    except (OSError, ValueError):
        return False
    return all(drawn[:-1]) and len(set(drawn)) == len(drawn)


def families(folders: list[pathlib.Path]) -> list[list[pathlib.Path]]:
    """The fonts of each family, in the order of their names. Files with the same name count once."""
    files = {path.stem: path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in (".ttf", ".otf")}
    found: dict[str, list[pathlib.Path]] = {}
    for _, path in sorted(files.items()):
        if has_all(path, string.ascii_uppercase) and has_all(path, string.digits):
            found.setdefault(ImageFont.truetype(path, 40).getname()[0] or path.stem, []).append(path)
    return [found[name] for name in sorted(found)]


def colours(chance: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The colours of the paper and of the ink. One is at least 60 lighter than the other."""
    while True:
        paper, ink = (tuple(chance.randrange(256) for _ in range(3)) for _ in range(2))
        if abs(sum(paper) - sum(ink)) >= 3 * 60:
            return paper, ink


def draw(path: pathlib.Path, sign: str, side: int, chance: random.Random) -> Image.Image:
    """One sign of random size, place, angle and colours."""
    paper, ink = colours(chance)
    image = Image.new("RGB", (side, side), paper)
    font = ImageFont.truetype(path, chance.randint(side * 5 // 8, side * 7 // 8))
    left, top, right, bottom = font.getbbox(sign)
    margin = side // 10
    place = ((side - left - right) / 2 + chance.uniform(-margin, margin), (side - top - bottom) / 2 + chance.uniform(-margin, margin))
    ImageDraw.Draw(image).text(place, sign, font=font, fill=ink)
    return image.rotate(chance.uniform(-20, 20), resample=Image.Resampling.BILINEAR, fillcolor=paper)


def write_letters(folder: pathlib.Path, fonts: list[pathlib.Path], copies: int) -> int:
    """A folder for each letter."""
    for letter in string.ascii_uppercase:
        (folder / letter).mkdir(parents=True)
        for font in fonts:
            for copy in range(copies):
                name = f"{font.stem}-{copy}"
                draw(font, letter, SIDE, random.Random(f"{letter} {name}")).save(folder / letter / f"{name}.png")
    return len(string.ascii_uppercase) * len(fonts) * copies


def write_digits(files: list[pathlib.Path], fonts: list[pathlib.Path], copies: int) -> int:
    """CIFAR-10's binary format: a byte for the label, then the red, green and blue plane."""
    records = []
    for label, digit in enumerate(string.digits):
        for font in fonts:
            for copy in range(copies):
                planes = draw(font, digit, CIFAR_SIDE, random.Random(f"{digit} {font.stem}-{copy}")).split()
                records.append(bytes([label]) + b"".join(plane.tobytes() for plane in planes))
    random.Random(0).shuffle(records)
    files[0].parent.mkdir(parents=True, exist_ok=True)
    for i, file in enumerate(files):
        file.write_bytes(b"".join(records[i::len(files)]))
    return len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="where letters/ and digits/ are made (that of this program)")
    parser.add_argument("--fonts", type=pathlib.Path, action="append", metavar="FOLDER", help="folder of .ttf and .otf files, may be given again (/usr/share/fonts)")
    parser.add_argument("--copies", type=int, default=6, metavar="N", help="of each sign of each font, each drawn in another way (6)")
    arguments = parser.parse_args()
    for made in ("letters", "digits"):
        if (arguments.folder / made).exists():
            sys.exit(f"letters.py: {arguments.folder / made} is there already; remove it to have it made again")
    folders = arguments.fonts or [pathlib.Path("/usr/share/fonts")]
    found = families(folders)
    if len(found) < FEWEST:
        sys.exit(f"letters.py: found {len(found)} families of fonts with letters and digits in {', '.join(map(str, folders))}, and needs {FEWEST}; Debian's"
                 " packages fonts-dejavu-core, fonts-freefont-ttf and fonts-liberation have some")
    test = [font for fonts in found[::5] for font in fonts]
    train = [font for fonts in found for font in fonts if font not in test]
    digits = arguments.folder / "digits"
    batches = [digits / f"data_batch_{i}.bin" for i in range(1, 6)]
    counts = [write_letters(arguments.folder / "letters/train", train, arguments.copies), write_letters(arguments.folder / "letters/test", test, arguments.copies),
              write_digits(batches, train, arguments.copies), write_digits([digits / "test_batch.bin"], test, arguments.copies)]
    print(f"{len(train)} fonts to train on and {len(test)} of other families to test: letters {counts[0]:,} and {counts[1]:,}, digits {counts[2]:,} and {counts[3]:,}")


if __name__ == "__main__":
    main()
