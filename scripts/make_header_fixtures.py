#!/usr/bin/env python3
"""Writes the headers of GGUF files: metadata and tensor directory, without the data section.

  scripts/make_header_fixtures.py FOLDER [OUT]

FOLDER/NAME/model.gguf -> OUT/NAME.gguf, FOLDER/NAME/model-q8_0.gguf -> OUT/NAME-q8_0.gguf (default
OUT: tests/golden/headers). The result is a byte-exact prefix of the file; GgufFile::parse reads it
with header_only. Standard library only.
"""
import pathlib
import struct
import sys

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Walker:
    """Steps over one file and remembers where it stands."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.number("Q")
        self.at += length

    def value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            if element in SCALARS:
                self.at += count * SCALARS[element]
            else:
                for _ in range(count):
                    self.value(element)
        else:
            self.at += SCALARS[kind]


def header(data):
    if data[:4] != b"GGUF":
        raise ValueError("no GGUF file")
    walk = Walker(data)
    walk.at = 8
    tensors, entries = walk.number("Q"), walk.number("Q")
    for _ in range(entries):
        walk.string()
        walk.value(walk.number("I"))
    for _ in range(tensors):
        walk.string()
        dims = walk.number("I")
        walk.at += 8 * dims + 4 + 8  # dims, type, offset
    if walk.at > len(data):
        raise ValueError("the file ends inside its header")
    return data[:walk.at]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3
                       else pathlib.Path(__file__).parent.parent / "tests/golden/headers")
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*/model*.gguf")):
        if path.stem not in ("model", "model-q8_0"):
            continue
        data = header(path.read_bytes())
        name = path.parent.name + path.stem.removeprefix("model")
        (out / (name + ".gguf")).write_bytes(data)
        print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
