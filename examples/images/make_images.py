"""Draws circles, squares and crosses of random size, place and colour: PNG files in shapes/train/CLASS and shapes/test/CLASS. Needs no package."""

import pathlib
import random
import struct
import zlib

SIDE = 32  # pixels


def inside(shape: str, x: float, y: float, size: float) -> bool:
    if shape == "circle":
        return x * x + y * y <= size * size
    if shape == "square":
        return max(abs(x), abs(y)) <= size * 0.85
    return min(abs(x), abs(y)) <= size * 0.3 and max(abs(x), abs(y)) <= size  # cross


def draw(shape: str, chance: random.Random) -> bytes:
    """Returns the rows of red, green and blue values. A 0 byte precedes each row, as in a PNG without a filter."""
    size, left, top = chance.uniform(5, 10), chance.uniform(11, 21), chance.uniform(11, 21)
    ink, paper = (bytes(chance.randrange(low, low + 100) for _ in range(3)) for low in chance.sample((0, 155), 2))
    return b"".join(b"\0" + b"".join(ink if inside(shape, x - left, y - top, size) else paper for x in range(SIDE)) for y in range(SIDE))


def png(rows: bytes) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)  # 8 bits, RGB
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


for split, count in (("train", 200), ("test", 50)):
    for shape in ("circle", "cross", "square"):
        folder = pathlib.Path("shapes", split, shape)
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (folder / f"{i}.png").write_bytes(png(draw(shape, random.Random(f"{split} {shape} {i}"))))
