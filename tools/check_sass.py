#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of the loops that decode weights, in machine code for one generation of GPUs, and compares them with cuda/README.md.

    check_sass.py build/release/cuda/fast_*.o           compares: exits with 1 if a loop has grown by more than 5 %, if a kernel has more
                                                        registers than its threads leave it, or a stack that the table does not have
    check_sass.py --table build/release/cuda/fast_*.o   prints the table for cuda/README.md

The files are objects or cubins. A loop is a range of instructions that ends with a branch to its beginning and multiplies codes (IDP); a kernel
has one for each unit of a block, and the table has their mean. The tile kernel has one loop that multiplies halves (HMMA) and branches to the
decoder of a unit: the table has its longest way, that of all inputs of a tile. ALU: instructions of the pipe that computes logic, shifts, byte permutations,
additions and comparisons of integers; a multiprocessor starts two of them in a cycle, and four of all. cuobjdump and nvdisasm (both of the
toolkit, or of the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm) and c++filt are looked for in PATH; without them the program says that
it was skipped, and exits with 77.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[1] / "cuda" / "README.md"
BEGIN = "<!-- loops of sm_90, by tools/check_sass.py -->"
END = "<!-- end of loops -->"
RISE = 1.05

# What kernels are called in the table, by their template and its last argument: the size of a tile, the number of rows.
TILES = {("LinearTileKernel", "SmallTile"): "64 inputs", ("LinearTileKernel", "LargeTile"): "128 inputs"}
STREAMS = {("StreamProductsKernel", "1"): "stream, one row", ("StreamProductsKernel", "2"): "stream, two rows",
           ("StreamProductsKernel", "4"): "stream, four rows", ("StreamTilesKernel", None): "stream, tiles of four"}
KERNELS = {("ActivateFewKernel", None): "gate, up", ("ProjectFewKernel", None): "down", ("LinearNormKernel", None): "dense", **TILES, **STREAMS}
# Registers that a thread may have: a block of the tile kernel has 256 threads, one of the stream kernels 576.
MOST_REGISTERS = dict.fromkeys(TILES.values(), 240) | dict.fromkeys(STREAMS.values(), 112)
ALU = {"LOP3", "PLOP3", "SHF", "SHL", "SHR", "PRMT", "IADD3", "IADD", "VIADD", "VIADDMNMX", "VIMNMX", "LEA", "ISETP", "SEL",
       "IMNMX", "IABS", "BMSK", "SGXT", "BREV", "FSETP", "FSEL", "FMNMX", "P2R", "R2P", "I2FP", "F2FP", "MOV"}
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def functions(text):
    """Yields (mangled name, [(address, opcode, operands, is conditional)]) of the output of cuobjdump -sass."""
    name, body = None, []
    for line in text.splitlines():
        if "Function : " in line:
            if name:
                yield name, body
            name, body = line.split("Function : ")[1].strip(), []
            continue
        match = INSTRUCTION.match(line)
        if match:
            body.append((int(match[1], 16), match[3], match[4], match[2] is not None))
    if name:
        yield name, body


def longest_way(inside):
    """Returns (instructions, ALU) of the longest way through a loop that has no loop in it."""
    last = inside[-1][0]
    ways = {last: (1, 0)}
    following = last
    for address, opcode, operands, is_conditional in reversed(inside[:-1]):
        candidates = [ways[following]]
        target = re.search(r"0x([0-9a-f]+)\s*$", operands.strip())
        if opcode == "BRA" and target and address < int(target[1], 16) <= last:
            candidates = candidates * is_conditional + [ways[int(target[1], 16)]]
        longest = max(candidates)
        ways[address] = (longest[0] + 1, longest[1] + (opcode.split(".")[0] in ALU))
        following = address
    return ways[inside[0][0]]


def loops(body, product):
    """Returns [(instructions, ALU)] of the innermost loops with a product, IDP or HMMA."""
    ranges = []
    for address, opcode, operands, _ in body:
        if opcode.split(".")[0] != "BRA":
            continue
        target = re.search(r"0x([0-9a-f]+)\s*$", operands.strip())
        if target and int(target[1], 16) <= address:
            ranges.append((int(target[1], 16), address))
    counts = []
    for first, last in ranges:
        if any(first <= a and b <= last and (a, b) != (first, last) for a, b in ranges):
            continue
        inside = [instruction for instruction in body if first <= instruction[0] <= last]
        opcodes = [opcode.split(".")[0] for _, opcode, _, _ in inside]
        if product in opcodes and product == "HMMA":
            counts.append(longest_way(inside))
        elif product in opcodes:
            counts.append((len(opcodes), sum(opcode in ALU for opcode in opcodes)))
    return counts


def kernel_of(demangled):
    """Returns (kernel, panel) of "void minim::cuda::fast::run<...ActivateFewKernel<...> >(...)", or None."""
    match = re.search(r"run<(\w+)<(.*?)(?:, (\w+))?> ?>\(", re.sub(r"minim::(cuda::fast::|panel::)?", "", demangled))
    kernel = KERNELS.get((match[1], match[3])) if match else None
    if kernel is None:
        return None
    by_tables = match[2].startswith("ByTables<") and kernel not in STREAMS.values()  # the stream kernels of one row always are
    panel = re.sub(r"^(ByTables|TilePanels|TileRows)<", "", match[2])
    group = re.search(r"\(Format\)\d+, (\d+)", panel)  # columns with one scale
    name = panel.split("<")[0].strip(" >").removesuffix("Panel") + (f" {group[1]}" if group else "")
    return kernel, name + (", tables" if by_tables else "")


def measure(files, architecture):
    """Returns {(kernel, panel): (instructions, ALU, registers, stack)}, and {name: stack} of the other kernels that have a stack."""
    found, stacks = {}, {}
    for file in files:
        usage = {}
        text = run("cuobjdump", "-res-usage", "-arch", architecture, file)
        for name, registers, stack, local in re.findall(r"Function (\S+):\n\s*REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)", text):
            usage[name] = (int(registers), int(stack) + int(local))
        code = list(functions(run("cuobjdump", "-sass", "-arch", architecture, file)))
        names = run("c++filt", *[name for name, _ in code]).splitlines() if code else []
        for (mangled, body), demangled in zip(code, names, strict=True):
            key = kernel_of(demangled)
            counts = loops(body, "HMMA" if key[0] in TILES.values() else "IDP") if key else []
            if not counts:
                if usage[mangled][1] > 0:
                    stacks[demangled] = usage[mangled][1]
                continue
            mean = [round(sum(column) / len(counts)) for column in zip(*counts, strict=True)]
            found[key] = (*mean, *usage[mangled])
    return found, stacks


def table_of(found):
    lines = ["| decoder | kernel | instructions | ALU | registers | stack |", "|---|---|---|---|---|---|"]
    for (kernel, panel), counts in sorted(found.items(), key=lambda item: item[0][::-1]):
        lines.append(f"| {panel} | {kernel} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def written():
    text = README.read_text(encoding="utf-8")
    if BEGIN not in text:
        sys.exit(f"{README}: no line '{BEGIN}'")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text.split(BEGIN)[1].split(END)[0], re.MULTILINE)
    return {(kernel, panel): tuple(map(int, counts)) for panel, kernel, *counts in rows}


def faults_of(found, known):
    """Returns a line for each thing in which kernels are worse than the table."""
    faults = []
    for key, (instructions, alu, registers, stack) in sorted(found.items()):
        name = f"{key[1]}, {key[0]}"
        if registers > MOST_REGISTERS.get(key[0], registers):
            faults.append(f"{name}: {registers} registers, at most {MOST_REGISTERS[key[0]]}")
        if key not in known:
            faults.append(f"{name}: not in the table of {README.name}")
            continue
        if stack > known[key][3]:
            faults.append(f"{name}: {stack} bytes of stack, {known[key][3]} in the table")
        for what, now, before in (("instructions", instructions, known[key][0]), ("ALU", alu, known[key][1])):
            if now > before * RISE:
                faults.append(f"{name}: {now} {what}, {before} in the table")
        if registers > known[key][2]:
            print(f"{name}: {registers} registers, {known[key][2]} in the table")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--table", action="store_true", help="print the table instead of comparing")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    missing = [name for name in ("cuobjdump", "nvdisasm", "c++filt") if not shutil.which(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} not found")
        sys.exit(77)
    found, stacks = measure(options.files, options.architecture)
    if not found:
        sys.exit(f"no loops of {options.architecture} in {', '.join(map(str, options.files))}")
    if options.table:
        print(table_of(found))
        return
    faults = faults_of(found, written()) + [f"{name}: {stack} bytes of stack" for name, stack in sorted(stacks.items())]
    print(f"{len(found)} kernels with loops, {len(faults)} faults")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
