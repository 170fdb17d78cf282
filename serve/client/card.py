"""Image cards: a drawn number in large digits, as a PNG that needs no library to be made."""

from __future__ import annotations

import base64
import zlib
from struct import pack

_FONT = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}
"""Seven rows of five dots a digit."""
SCALE, MARGIN = 24, 2
"""Pixels of a dot, and empty dots around the number and between digits."""


def dots(number: str) -> list[list[bool]]:
    """The card in dots, dark where True."""
    rows = [[_FONT[digit].split()[line] for digit in number] for line in range(7)]
    gap = "0" * MARGIN
    lines = [gap + gap.join(row) + gap for row in rows]
    empty = ["0" * len(lines[0])] * MARGIN
    return [[dot == "1" for dot in line] for line in (*empty, *lines, *empty)]


def png(number: str) -> bytes:
    """The card as an 8-bit greyscale PNG, black on white."""
    lines = [bytes(0 if dot else 255 for dot in row for _ in range(SCALE)) for row in dots(number)]
    width, height = len(lines[0]), len(lines) * SCALE
    pixels = b"".join((b"\0" + line) * SCALE for line in lines)
    header = pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def data_url(number: str) -> str:
    """The card as an image URL of the chat API."""
    return "data:image/png;base64," + base64.b64encode(png(number)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))
