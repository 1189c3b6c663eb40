# SPDX-License-Identifier: Apache-2.0
"""Each check of tools/checks finds a fault that is planted in a small project, and finds nothing in a project without one."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tools" / "checks"
sys.path.insert(0, str(ROOT / "tools"))
import check_sass  # noqa: E402
SKIPPED = 77


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run_check(self, name, *args):
        result = subprocess.run([sys.executable, CHECKS / f"{name}.py", "--root", self.root, *args], capture_output=True, text=True,
                                check=False)
        if result.returncode == SKIPPED:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.stderr, "")
        return result

    def passes(self, name, *args):
        result = self.run_check(name, *args)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def finds(self, name, *expected, args=()):
        result = self.run_check(name, *args)
        self.assertEqual(result.returncode, 1, result.stdout)
        for text in expected:
            self.assertIn(text, result.stdout)
        return result.stdout.strip().split("\n")


class Links(Planted):
    def test_a_dead_link_and_a_dead_anchor(self):
        self.write("docs/page.md", "# A page\n\n## What it says: `code`, twice\n")
        self.write("README.md", "[page](docs/page.md) [part](docs/page.md#what-it-says-code-twice) [web](https://example.org/x)\n")
        self.passes("links")
        self.write("README.md", "text\n[page](docs/pages.md)\n[part](docs/page.md#what-it-said)\n[own](#here)\n")
        lines = self.finds("links", "README.md:2: link to docs/pages.md", "README.md:3: link to docs/page.md#what-it-said",
                           "README.md:4: link to #here")
        self.assertEqual(len(lines), 3)

    def test_a_checkout_on_a_machine_without_git(self):
        (self.root / ".git").mkdir()
        self.write("README.md", "[page](docs/pages.md)\n")
        self.write("build/README.md", "[page](docs/pages.md)\n")
        with unittest.mock.patch.dict(os.environ, {"PATH": ""}):
            lines = self.finds("links", "README.md:1: link to docs/pages.md")
        self.assertEqual(len(lines), 1)

    def test_links_in_code_are_none(self):
        self.write("README.md", "`[a](b.md)`\n\n```\n[c](d.md)\n```\n")
        self.passes("links")


class Tables(Planted):
    def test_a_long_cell(self):
        self.write("README.md", f"| a | b |\n|---|---|\n| {'x' * 120} | [{'y' * 20}]({'z' * 200}) |\n\n{'w' * 500}\n")
        self.passes("tables")
        self.write("README.md", f"| a | b |\n|---|---|\n| {'x' * 121} | y |\n")
        self.finds("tables", "README.md:3: a cell of 121 characters")


class Words(Planted):
    def test_old_words_of_every_kind_of_file(self):
        self.write("README.md", "Loads the keys\nand values.\n")
        self.write("lib/kv/a.h", "// What is a\n// memory node? The yard is no stick.\nint processor;\n")
        self.write("lib/kv/b.cpp", 'void f() { fail("the processor has no room"); }\n')
        self.write("examples/a.py", 'def f():\n    """Returns the yardstick."""\n    return "x"  # by guess\n')
        self.write("CMakeLists.txt", 'option(A "Several memory nodes" ON) # set aside\n')
        lines = self.finds("words", "README.md:1: 'keys and values'", "lib/kv/a.h:2: 'memory node'",
                           "lib/kv/b.cpp:1: 'the processor'", "examples/a.py:2: 'yardstick'", "examples/a.py:3: 'guess'",
                           "CMakeLists.txt:1: 'memory nodes'", "CMakeLists.txt:1: 'set aside'", args=("--no-identifiers",))
        self.assertEqual(len(lines), 7)

    def test_code_is_not_prose(self):
        self.write("lib/kv/a.cpp", "int yardstick = guess(held);  // the CPU, `held`; with no lock held; queries, keys and values\n")
        self.write("README.md", "The KV cache, `keys and values`.\n\n```\nkeys and values\n```\n")
        self.passes("words", "--no-identifiers")

    def test_old_words_in_identifiers_of_every_kind_of_file(self):
        self.write("lib/kv/held_pages.h", "#pragma once\nstruct Shortlist {\n    bool is_said, isSaid;\n};\n")
        self.write("lib/format/a.cpp", "int k_iq3s_points[4];\nint two(int at) { return madeUp(at) + k_most_rows; }\n")
        self.write("lib/constraint/a.cpp", "void add_ways();\n")
        self.write("examples/a.py", "def guess(yardstick):\n    return yardstick\n")
        self.write("CMakeLists.txt", "set(MINIM_YARDSTICK ON)\n")
        lines = self.finds("words", "lib/kv/held_pages.h:1: identifier 'held_pages'", "lib/kv/held_pages.h:2: identifier 'Shortlist': say top_k",
                           "held_pages.h:3: identifier 'is_said'", "held_pages.h:3: identifier 'isSaid'", "lib/format/a.cpp:1: identifier 'k_iq3s_points'",
                           "lib/format/a.cpp:2: identifier 'madeUp'", "lib/format/a.cpp:2: identifier 'k_most_rows': say k_max",
                           "lib/constraint/a.cpp:1: identifier 'add_ways'", "examples/a.py:1: identifier 'guess'",
                           "examples/a.py:1: identifier 'yardstick'", "examples/a.py:2: identifier 'yardstick'",
                           "CMakeLists.txt:1: identifier 'MINIM_YARDSTICK'", args=("--identifiers",))
        self.assertEqual(len(lines), 13)  # a rule of prose finds is_said too
        counts = self.run_check("words", "--count").stdout
        self.assertIn("yardstick 2 (examples 2): say reference\n", counts)

    def test_words_in_another_meaning_names_of_the_abi_and_of_libraries_stay(self):
        self.write("lib/kv/a.cpp", "int always, subways, held_out_rows, code_point, heldout, most, residence = MINIM_RESIDENCE_AUTO;\n"
                                   "std::promise<int> done; uint64_t n_pages_held; int lock_held;\n"
                                   "#include \"held.h\"\nconst char* text = \"`shortlist`\"; int points, ways;\n")
        self.write("lib/format/a.cpp", "auto time_point = zero_points + data[0].timePoint;\n")
        self.passes("words", "--identifiers")

    def test_a_word_over_two_lines_of_a_comment(self):
        self.write("lib/kv/a.h", "// Bytes of the keys\n// and values.\n")
        self.finds("words", "lib/kv/a.h:1: 'keys and values'")


class Spdx(Planted):
    def test_a_missing_line_is_found_and_added(self):
        names = {"a.cpp": "int a;\n", "b.py": '#!/usr/bin/env python3\n"""Doc."""\n', "c.c": "int c;\n", "CMakeLists.txt": "project(x)\n",
                 "run.sh": "#!/bin/sh\ntrue\n"}
        for name, text in names.items():
            self.write(name, text)
        self.write("data/x.py", "data\n")
        self.assertEqual(len(self.finds("spdx", *names)), len(names))
        result = self.run_check("spdx", "--fix")
        self.assertEqual((result.returncode, result.stdout), (0, f"{len(names)} files changed\n"))
        self.assertEqual((self.root / "b.py").read_text().split("\n")[:2], ["#!/usr/bin/env python3", "# SPDX-License-Identifier: Apache-2.0"])
        self.assertTrue((self.root / "c.c").read_text().startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"))
        self.passes("spdx")


class Format(Planted):
    def test_a_format_error(self):
        shutil.copy(ROOT / ".clang-format", self.root)
        self.write("a.cpp", "int main() {\n    return 0;\n}\n")
        self.passes("format")
        self.write("b.cpp", "int  main( ) { return 0; }\n")
        self.finds("format", "b.cpp:1:")


class LintPython(Planted):
    def test_an_unused_import(self):
        shutil.copy(ROOT / "ruff.toml", self.root)
        self.write("a.py", "import json\n\nprint(json.dumps(1))\n")
        self.passes("lint_python")
        self.write("b.py", "import json\n")
        self.finds("lint_python", "b.py:1:", "F401")


class Changed(Planted):
    """A project in git with two commits, and a build folder with the compile commands of its files."""

    def git(self, *args):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True, capture_output=True)

    def commit(self, **files):
        for name, text in files.items():
            self.write(f"{name}.cpp", text)
        of_gcc = "-Winvalid-pch -include absent.hxx -fno-tree-pre --param=max-pow-sqrt-depth=5"
        commands = [{"directory": str(self.root), "file": str(self.root / f"{name}.cpp"),
                     "command": f"/usr/bin/c++ -std=c++20 -Wall {of_gcc} -o {name}.o -c {self.root / name}.cpp"} for name in files]
        self.write("build/compile_commands.json", json.dumps(commands))
        self.git("init", "-q", "-b", "main")
        self.git("add", *(f"{name}.cpp" for name in files))
        self.git("commit", "-q", "-m", "first")
        self.git("commit", "-q", "-m", "second", "--allow-empty")
        return ("--build", str(self.root / "build"))

    def require(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f"{program} is missing")


class Tidy(Changed):
    def test_only_the_changed_file_is_checked(self):
        self.require("git", "clang-tidy")
        shutil.copy(ROOT / ".clang-tidy", self.root)
        bad = "int* find() {\n    return 0;\n}\n"
        build = self.commit(old=bad, new="int* find() {\n    return nullptr;\n}\n")
        self.passes("tidy", *build)
        self.write("new.cpp", bad)
        lines = self.finds("tidy", "new.cpp:2:", "modernize-use-nullptr", args=build)
        self.assertEqual(len(lines), 1)


class Clang(Changed):
    BAD = "int f(bool b) {\n    return b & 1 == 1;\n}\n"

    def test_a_warning_in_the_changed_file(self):
        self.require("git", "clang++")
        build = self.commit(old=self.BAD, new="int f() { return 1; }\n")
        self.passes("clang", *build)
        self.write("new.cpp", self.BAD)
        lines = self.finds("clang", "new.cpp:2:", "-Wparentheses", args=build)
        self.assertEqual(len(lines), 1)

    def test_a_header_is_checked_in_a_file_that_includes_it(self):
        self.require("git", "clang++")
        build = self.commit(user='#include "sub/part.h"\nint f() { return part(); }\n', other="int g() { return 1; }\n")
        self.write("sub/part.h", "inline int part() { return 1; }\n")
        self.passes("clang", *build)
        self.write("sub/part.h", "inline int part() { return missing; }\n")
        self.finds("clang", "part.h:1:", "undeclared identifier 'missing'", args=build)

    def test_a_clone_without_the_commit_before_is_skipped(self):
        self.require("git", "clang++")
        build = self.commit(new="int f() { return 1; }\n")
        self.git("checkout", "-q", "--orphan", "alone")
        self.git("commit", "-q", "-m", "alone", "--allow-empty")
        self.git("branch", "-q", "-D", "main")
        result = subprocess.run([sys.executable, CHECKS / "clang.py", "--root", self.root, *build], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, SKIPPED)
        self.assertIn("no commit before this one", result.stdout)


    def test_a_file_of_a_unity_build(self):
        self.require("git", "clang++")
        build = self.commit(good="int f(bool b) {\n    return b ? 1 : 0;\n}\n")
        unity = self.write("build/Unity/unity_0_cxx.cxx", f'#include "{self.root / "good.cpp"}"\n')
        commands = self.root / "build" / "compile_commands.json"
        entries = json.loads(commands.read_text(encoding="utf-8"))
        entries[0].update(file=str(unity), command=f"/usr/bin/c++ -Wall -o unity.o -c {unity}")
        commands.write_text(json.dumps(entries), encoding="utf-8")
        self.passes("clang", *build)
        self.write("good.cpp", self.BAD)
        self.finds("clang", "good.cpp:2:", args=build)


class Touches(Changed):
    def test_folders_of_the_change(self):
        self.require("git")
        shutil.copytree(CHECKS, self.root / "tools" / "checks")
        self.commit(old="int a;\n", new="int b;\n")
        self.git("add", "tools")
        self.git("commit", "-q", "-m", "third")
        script = self.root / "tools" / "checks" / "project.py"

        def status(*folders):
            return subprocess.run([sys.executable, script, "touches", *folders], check=False).returncode

        self.assertEqual(status("lib", "tools"), 0)
        self.assertEqual(status("lib", "tool"), 1)
        self.write("lib/a.cpp", "int c;\n")
        self.assertEqual(status("lib"), 0)


class Fuzz(Changed):
    PARSER = "int parse(const unsigned char* data, unsigned long n) { return n > 2 && data[0] == 'b' && data[1] == 'u' ? data[n %s] : 0; }\n"
    TARGET = ('#include "parser/parse.h"\n'
              'extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, unsigned long n) { parse(data, n); return 0; }\n')
    CMAKE = ("cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nadd_executable(fuzz_parse tests/fuzz/fuzz_parse.cpp lib/parser/parse.cpp)\n"
             "target_include_directories(fuzz_parse PRIVATE lib)\ntarget_compile_options(fuzz_parse PRIVATE -fsanitize=fuzzer,address)\n"
             "target_link_options(fuzz_parse PRIVATE -fsanitize=fuzzer,address)\n"
             "set_target_properties(fuzz_parse PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests/fuzz)\n")

    def project(self):
        self.write("CMakeLists.txt", self.CMAKE)
        self.write("lib/parser/parse.h", "int parse(const unsigned char* data, unsigned long n);\n")
        self.write("lib/parser/parse.cpp", self.PARSER % "- 1")
        self.write("tests/fuzz/fuzz_parse.cpp", self.TARGET)
        self.write("tests/fuzz/corpus/fuzz_parse/seed", "buz")
        self.git("init", "-q", "-b", "main")
        self.git("add", "CMakeLists.txt", "lib", "tests")
        self.git("commit", "-q", "-m", "first")
        self.git("commit", "-q", "-m", "second", "--allow-empty")

    def test_targets_are_those_whose_sources_change(self):
        self.require("git")
        self.project()
        self.passes("fuzz", "--list")
        for name in ("lib/parser/parse.cpp", "lib/parser/parse.h", "tests/fuzz/fuzz_parse.cpp"):
            old = (self.root / name).read_text()
            self.write(name, old + "// changed\n")
            self.assertEqual(self.run_check("fuzz", "--list").stdout, "fuzz_parse\n", name)
            self.write(name, old)
        self.write("lib/parser/other.cpp", "int other;\n")
        self.passes("fuzz", "--list")

    def test_a_planted_overrun_is_found(self):
        self.require("git", "clang++", "ninja")
        self.project()
        self.write("lib/parser/parse.cpp", self.PARSER % "")
        self.finds("fuzz", "fuzz_parse: ", "heap-buffer-overflow", args=("--seconds", "10"))
        self.assertTrue(list((self.root / "build/fuzz/failures").glob("fuzz_parse-*")))


class Sass(unittest.TestCase):
    """tools/check_sass.py on a listing with one loop, and on counts."""

    LISTING = """
        Function : kernel
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/                   LDS R2, [R3] ;
        /*0020*/                   LOP3.LUT R2, R2, 0xf0f0f0f, RZ, 0xc0, !PT ;
        /*0030*/                   IDP.4A.S8.S8 R4, R2, R5, R4 ;
        /*0040*/              @P0  BRA 0x10 ;
        /*0050*/                   EXIT ;
"""
    KEY = ("down", "Q4K")

    def test_a_loop_is_counted(self):
        ((name, body),) = check_sass.functions(self.LISTING)
        self.assertEqual(name, "kernel")
        self.assertEqual(check_sass.loops(body, "IDP"), [(4, 1)])
        self.assertEqual(check_sass.loops(body, "HMMA"), [])

    def test_kernels_have_their_names_in_the_table(self):
        def name_of(kernel):
            return check_sass.kernel_of(f"void minim::cuda::fast::run<minim::cuda::fast::{kernel} >(minim::cuda::fast::{kernel})")

        panel = "minim::panel::Iq4XsPanel<minim::cuda::fast::Lanes>"
        tables = f"minim::cuda::fast::ByTables<{panel} >"
        self.assertEqual(name_of(f"ProjectFewKernel<{panel} >"), ("down", "Iq4Xs"))
        self.assertEqual(name_of(f"ProjectFewKernel<{tables} >"), ("down", "Iq4Xs, tables"))
        self.assertEqual(name_of(f"StreamProductsKernel<{tables}, 1>"), ("stream, one row", "Iq4Xs"))
        self.assertEqual(name_of(f"StreamProductsKernel<{panel}, 4>"), ("stream, four rows", "Iq4Xs"))
        self.assertEqual(name_of(f"StreamTilesKernel<{panel} >"), ("stream, tiles of four", "Iq4Xs"))
        self.assertIsNone(name_of(f"LinearManyKernel<{panel} >"))

    def test_a_rise_a_stack_and_too_many_registers_are_faults(self):
        known = {self.KEY: (100, 40, 64, 0)}
        self.assertEqual(check_sass.faults_of({self.KEY: (105, 42, 64, 0)}, known), [])
        self.assertEqual(check_sass.faults_of({self.KEY: (106, 40, 64, 0)}, known), ["Q4K, down: 106 instructions, 100 in the table"])
        self.assertEqual(check_sass.faults_of({self.KEY: (100, 43, 64, 0)}, known), ["Q4K, down: 43 ALU, 40 in the table"])
        self.assertEqual(check_sass.faults_of({self.KEY: (100, 40, 64, 8)}, known), ["Q4K, down: 8 bytes of stack, 0 in the table"])
        other = ("stream, one row", "Q4K")
        self.assertEqual(check_sass.faults_of({other: (9, 9, 113, 0)}, known),
                         ["Q4K, stream, one row: 113 registers, at most 112", "Q4K, stream, one row: not in the table of README.md"])


if __name__ == "__main__":
    unittest.main()
