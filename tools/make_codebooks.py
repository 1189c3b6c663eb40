#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes lib/format/codebooks.h from lib/format/codebooks.json.

    make_codebooks.py           write the header
    make_codebooks.py --check   exit 1 when the header on disk differs from what would be written
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "lib" / "format"
MAX_COLUMNS = 110

# Codebooks whose entries have few distinct magnitudes: one 16-bit word for each entry.
GRIDS = ["iq2xxs", "iq2xs", "iq2s", "iq3xxs", "iq3s", "iq1s"]
# Signed values that are used as they are.
VALUES = ["iq4nl", "iq2k", "iq3k", "iq4k", "iq5k", "iq6k", "iq2kl"]

HEADER = """\
// SPDX-License-Identifier: Apache-2.0
// The codebooks and value tables of the formats. Written by tools/make_codebooks.py from codebooks.json;
// change those, not this file.
//
// A codebook entry is one 16-bit word: position p of the entry has an index of n bits, at bits n*p .. n*p+n-1, into the
// codebook's sorted list of magnitudes; n is 2 for the entries of eight (IQ1, IQ2) and 3 for the entries of four (IQ3).
// grids.h unpacks them. The sign table and the signed value tables are stored as they are.
#pragma once

#include <cstdint>

#include "format/table.h"

// clang-format off
namespace minim::codebooks {
"""

FOOTER = """
}  // namespace minim::codebooks
// clang-format on
"""


def array(element_type, name, texts):
    """Returns the definition of one table, with its elements wrapped to the line width."""
    lines = [""]
    for text in texts:
        item = text + ","
        if len(lines[-1]) + 1 + len(item) > MAX_COLUMNS:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "    ") + item
    lines[-1] = lines[-1].rstrip(",")
    body = "\n".join(lines)
    return f"inline constexpr Table<{element_type}, {len(texts)}> k_{name} = {{{{\n{body}}}}};\n"


def packed_entries(shape, data):
    """Returns the sorted magnitudes of a codebook and its entries as 16-bit words."""
    entries, positions = shape
    magnitudes = sorted(set(data))
    index_bits = {8: 2, 4: 3}[positions]
    assert len(magnitudes) <= 1 << index_bits
    words = []
    for point in range(entries):
        word = 0
        for position in range(positions):
            index = magnitudes.index(data[point * positions + position])
            word |= index << (index_bits * position)
        words.append(word)
    return magnitudes, words


def header_text(tables):
    parts = [HEADER]
    for name in GRIDS:
        table = tables[name]
        magnitudes, words = packed_entries(table["shape"], table["data"])
        parts.append(f"// {table['use']}")
        parts.append(array("int8_t", f"{name}_magnitudes", [str(m) for m in magnitudes]))
        parts.append(array("uint16_t", f"{name}_entries", [f"0x{w:04X}" for w in words]))
    parts.append(f"// {tables['ksigns']['use']}")
    parts.append(array("uint8_t", "ksigns", [f"0x{s:02X}" for s in tables["ksigns"]["data"]]))
    for name in VALUES:
        parts.append(f"// {tables[name]['use']}")
        parts.append(array("int8_t", name, [str(v) for v in tables[name]["data"]]))
    parts.append("// 16 FP4 values by code, doubled so that they are whole numbers (MXFP4, NVFP4)")
    parts.append(array("int8_t", "e2m1_doubled", [str(int(2 * v)) for v in tables["e2m1"]["data"]]))
    return "\n".join(parts).rstrip("\n") + "\n" + FOOTER


def main():
    tables = json.loads((FOLDER / "codebooks.json").read_text())["tables"]
    text = header_text(tables)
    path = FOLDER / "codebooks.h"
    if sys.argv[1:] == ["--check"]:
        if path.read_text() != text:
            sys.exit(f"{path} is not what {pathlib.Path(__file__).name} writes from codebooks.json")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    path.write_text(text)


if __name__ == "__main__":
    main()
