# SPDX-License-Identifier: Apache-2.0
"""Reads and writes GGUF files without the library, to check what it wrote and to choose what it reads."""

import pathlib
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Number: name, elements and bytes of a block, bytes in front of the blocks of a row.
TYPES = {0: ("F32", 1, 4, 0), 1: ("F16", 1, 2, 0), 2: ("Q4_0", 32, 18, 0), 3: ("Q4_1", 32, 20, 0), 6: ("Q5_0", 32, 22, 0),
         7: ("Q5_1", 32, 24, 0), 8: ("Q8_0", 32, 34, 0), 10: ("Q2_K", 256, 84, 0), 11: ("Q3_K", 256, 110, 0), 12: ("Q4_K", 256, 144, 0),
         13: ("Q5_K", 256, 176, 0), 14: ("Q6_K", 256, 210, 0), 20: ("IQ4_NL", 32, 18, 0), 30: ("BF16", 1, 2, 0), 39: ("MXFP4", 32, 17, 0),
         40: ("NVFP4", 64, 36, 0), 139: ("IQ4_K", 256, 144, 0), 140: ("IQ5_K", 256, 176, 0), 141: ("IQ6_K", 256, 212, 0)}  # fmt: skip


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            return (element, [self.value(element) for _ in range(count)])
        return self.number(SCALARS[kind])


class Gguf:
    """metadata: {key: (type, value)}; tensors: {name: (dims, contiguous one first, type, bytes)}; both in the order of the file.
    value_at and tensor_at say where the value of a key and the bytes of a tensor begin."""

    def __init__(self, path):
        self.data = data = pathlib.Path(path).read_bytes()
        reader = Reader(data)
        assert data[:4] == b"GGUF", path
        reader.at = 4
        self.version, n_tensors, n_entries = (reader.number(code) for code in "IQQ")
        self.metadata, self.value_at, records = {}, {}, []
        for _ in range(n_entries):
            key, kind = reader.text(), reader.number("I")
            self.value_at[key] = reader.at
            self.metadata[key] = (kind, reader.value(kind))
        for _ in range(n_tensors):
            name = reader.text()
            dims = [reader.number("Q") for _ in range(reader.number("I"))]
            records.append((name, dims, reader.number("I"), reader.number("Q")))
        alignment = self.value("general.alignment") or 32
        base = (reader.at + alignment - 1) // alignment * alignment
        self.tensors, self.tensor_at = {}, {}
        for name, dims, number, offset in records:
            self.tensor_at[name] = base + offset
            kind, elements, size, header = TYPES[number]
            n_bytes = dims[0] // elements * size + header
            for dim in dims[1:]:
                n_bytes *= dim
            self.tensors[name] = (dims, kind, data[base + offset : base + offset + n_bytes])
            assert len(self.tensors[name][2]) == n_bytes, name

    def value(self, key):
        return self.metadata[key][1] if key in self.metadata else None

    def text_at(self, key, index):
        """Returns where an element of an array of texts begins: with its length, of 8 bytes."""
        reader = Reader(self.data)
        reader.at = self.value_at[key]
        reader.number("I"), reader.number("Q")
        for _ in range(index):
            reader.text()
        return reader.at

    def types(self):
        return {name: kind for name, (_, kind, _) in self.tensors.items()}
