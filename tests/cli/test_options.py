# SPDX-License-Identifier: Apache-2.0
"""The table of options: what `minim options --json` lists is what both programs take, and nothing else is read as an option."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import time
import unittest
import urllib.request

from support import Q8_0, ROOT, errors_of, run

SERVER = os.environ.get("MINIM_SERVER", "")
RANKS = {"-tp", "--tp", "--tp-size", "--tensor-parallel-size", "--pipeline-parallel-size"}  # as the published lines have them
# A value for each kind of option; --version ends a program after its options were read.
VALUES = {"integer": "1", "count": "2k", "seed": "18446744073709551615", "real": "1", "size": "1MiB", "part": "0.5", "numbers": "3,1", "text": "x"}
OWN_VALUES = {"--chunk": "2", "-sc": '{"method": "ngram"}', "--chat-template-kwargs": "{}", "--json-schema-file": str(Q8_0), "--api-key-file": __file__,
              "--chat-template": "{{ messages }}", "--chat-template-file": str(ROOT / "tests/data/chat/minim_tiny.jinja"), "--grammar-file": __file__,
              "--sums": __file__, "--answers": __file__, "--text": __file__,
              "--tensor-type-file": __file__, "--set": "key=1", "--set-file": f"key={__file__}", "--override-kv": "key=int:1", "--split-max-size": "1M"}


def table():
    return json.loads(run("options").stdout)


def run_command(command, *arguments, **settings):
    """Runs a command of the table, 'minim chat' or 'minim-server'."""
    environment = {**os.environ, **settings}
    if command != "minim-server":
        return run(*command.split()[1:], *arguments, env=environment)
    return subprocess.run([SERVER, *arguments], capture_output=True, encoding="utf-8", timeout=60, env=environment, check=False)


def value_of(row, name):
    if row["kind"] == "choice":
        return row["words"][0]
    return OWN_VALUES.get(name) or OWN_VALUES.get(next((n for n in row["names"] if n in OWN_VALUES), ""), VALUES.get(row["kind"]))


def start(arguments):
    """Starts the server and asks for its health. Returns its exit code after SIGTERM, or that of a server that does not start, and the log."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        with log.open("w") as output:
            process = subprocess.Popen([SERVER, *arguments, "--port", "0"], stderr=output)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            found = re.search(r" at http://\S+:(\d+)\n", log.read_text())
            if found:
                with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/health", timeout=60) as answer:
                    assert answer.status == 200
                break
            time.sleep(0.02)
        process.terminate()
        return process.wait(60), log.read_text()


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = table()
        cls.commands = {command for row in cls.table["options"] for command in row["commands"]}
        if not SERVER:
            cls.commands.discard("minim-server")

    def test_every_command_takes_what_the_table_says_and_its_help_lists_it(self):
        for command in sorted(self.commands):
            rows = [row for row in self.table["options"] if command in row["commands"]]
            words = run_command(command, "--help").stdout.replace(",", " ").split()
            arguments = []
            for row in rows:
                for name in row["names"] + row["opposite"]:
                    self.assertIn(name, words, (command, name))
                    value = value_of(row, name)
                    arguments += [name] if value is None else [name, value]
            # --cpu-moe excludes --n-cpu-moe, --prompt --file, and --host --uds: one of each pair at a time.
            for left_out in ({"--n-cpu-moe", "-ncmoe", "--file", "-f", "--uds"}, {"--cpu-moe", "-cmoe", "--prompt", "-p", "--host"}):
                kept, takes = [], False
                for word in arguments:
                    if word in left_out:
                        takes = word not in ("--cpu-moe", "-cmoe")
                        continue
                    if not takes:
                        kept.append(word)
                    takes = False
                done = run_command(command, *kept, "--version")
                self.assertEqual((done.returncode, done.stdout[:6]), (0, "minim "), (command, done.stderr))

    def test_an_option_of_another_command_is_refused_by_its_name(self):
        foreign = {name for row in self.table["of_others"] for name in row["names"]}
        for command in sorted(self.commands - {"minim options", "minim devices"}):
            own = {name for row in self.table["options"] if command in row["commands"] for name in row["names"]}
            others = {row["names"][-1] for row in self.table["options"]} - own - foreign
            for name in sorted(others)[:6]:
                done = run_command(command, name, "1")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(name, done.stderr)

    def test_options_of_other_programs_have_no_effect_or_are_refused_each_with_the_reason(self):
        command = "minim-server" if SERVER else "minim"
        own = {name for row in self.table["options"] if command in row["commands"] for name in row["names"] + row["opposite"]}
        allowed = []
        for row in self.table["of_others"]:
            names = [name for name in row["names"] if name not in own]
            values = {"nothing": [], "one": ["7"], "optional": ["7"], "toggle": ["on"], "many": ["7", "8"]}[row["takes"]]
            if not row["refused"]:
                allowed += [(name, row["reason"], values) for name in names]
                continue
            for name in names[:1]:
                done = run_command(command, "-m", str(Q8_0), name, *values)
                self.assertEqual((done.returncode, done.stdout), (2, ""), name)
                self.assertIn(f"{name}: {row['reason']}", done.stderr)
        arguments = [word for name, _, values in allowed for word in (name, *values)]
        done = run_command(command, "-m", "/nothing.gguf", *(("-p", "x") if command == "minim" else ()), *arguments)
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, 1, lines[-1:])  # all options are read, then there is no model
        for name, reason, _ in allowed:
            self.assertTrue(any(f" {name} has no effect: {reason}" in line for line in lines), name)

    def test_a_name_is_in_the_table_once(self):
        seen = {}
        for row in self.table["options"]:
            for name in row["names"] + row["opposite"]:
                for command in row["commands"]:
                    self.assertNotIn((name, command), seen)
                    seen[name, command] = row
        foreign = [name for row in self.table["of_others"] for name in row["names"]]
        self.assertEqual(len(foreign), len(set(foreign)))


class Reading(unittest.TestCase):
    ask = ("-m", Q8_0, "-p", "hi", "-n", 2, "--temp", 0)

    def refused(self, *arguments):
        done = run(*self.ask, *arguments)
        self.assertEqual((done.returncode, done.stdout, len(errors_of(done))), (2, "", 1), arguments)
        return done.stderr

    def test_unknown_options_are_refused_by_their_own_name_with_the_nearest_one(self):
        for name, rest, near in (("--fit-cty", [5], "--fit-ctx"), ("--max-model-lem", ["5"], "--max-model-len"), ("--thread", [], "--threads"),
                                 ("--no-such", [], ""), ("--no-uo", [], ""), ("-mqkw", [], ""), ("-nglx", ["5"], "-ngl"), ("--frobnicate", ["5"], ""), ("-xyz", ["a"], ""),
                                 ("--frobnicate=5", [], "")):
            error = self.refused(name, *rest)
            self.assertIn(f"the option {name.split('=')[0]} is not known", error)
            self.assertRegex(error, rf"; did you mean {near}[a-z-]*\?" if near else r"is not known \(minim --help")

    def test_abbreviations_are_not_accepted_and_underscores_are_hyphens(self):
        self.assertIn("--ctx", self.refused("--ctx", 512))
        self.assertIn("--top_", self.refused("--top_", 5))
        self.assertEqual(run(*self.ask, "--ctx_size", 512).returncode, 0)
        self.assertIn("--enable_expert_parallel has no effect", run(*self.ask, "--enable_expert_parallel").stderr)
        self.assertIn("--mm_proj", self.refused("--mm_proj", "x"))

    def test_an_empty_value_is_a_value(self):
        apart, together = (run(*self.ask, *words) for words in (("--system", ""), ("--system=",)))
        self.assertEqual((apart.returncode, apart.stdout), (together.returncode, together.stdout))
        self.assertEqual(run("-m", Q8_0, "--prompt=", "--raw", "-n", 2).stdout, run("-m", Q8_0, "--prompt", "", "--raw", "-n", 2).stdout)
        for option in ("--ctx-size=", "--temp=", "--kv=", "--seed=", "--tensor-split="):
            self.assertIn(option[:-1], self.refused(option, 5))

    def test_a_value_is_never_another_option(self):
        self.assertIn("--packed-file: its value is missing: --mmap is an option", self.refused("--packed-file", "--mmap"))
        self.assertIn("--log-file: its value is missing", self.refused("--log-file"))
        self.assertEqual(run("-m", Q8_0, "-n", 2, "-p", "--raw").returncode, 0)

    def test_numbers_as_other_programs_write_them(self):
        for words in (("-c", "1k"), ("--max-model-len", "1K"), ("-c", "0.5k"), ("-ngl", "all"), ("-ngl", "auto"), ("-ngl", -1), ("-t", -1), ("-tb", -1),
                      ("--top-k", -1), ("-n2", "-c512"), ("--reasoning-budget", -1)):
            self.assertEqual(run(*self.ask, *words).returncode, 0, words)
        self.assertIn(" of 1024\n", run(*self.ask, "-c", "1K").stderr)
        self.assertIn(" of 1000\n", run(*self.ask, "-c", "1k").stderr)
        for words in (("-c", "1.0001K5"), ("-c", "-1"), ("-c", "99999999999999999999"), ("-ngl", "some"), ("-ngl", -2), ("--temp", "nan"), ("-c", "1x")):
            self.assertIn(words[0], self.refused(*words))

    def test_a_seed_that_is_printed_is_taken(self):
        for seed in (0, 42, 2**63 - 1, 2**63, 2**64 - 1):
            done = run("-m", Q8_0, "-p", "hi", "-n", 4, "--temp", 2, "--seed", seed)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"seed {seed},", done.stderr)
        for seed in (2**64, "x", "1.5"):
            self.assertIn("--seed", self.refused("--seed", seed))

    def test_no_thought_with_a_budget_of_zero(self):
        done = run("-m", Q8_0, "-p", "What is the capital of France?", "--temp", 0, "--reasoning-budget", 0, "-n", 40)
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("</think>", done.stdout)
        self.assertEqual(run("-m", Q8_0, "-p", "What is the capital of France?", "--temp", 0, "-rea", "off", "-n", 40).stdout, done.stdout)

    def test_a_log_file_has_what_standard_error_would_have(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "log")
            done = run(*self.ask, "--jinja", "--log-file", file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--jinja has no effect", file.read_text())
            self.assertIn("tokens/s", file.read_text())
            done = run(*self.ask, "--log-file", folder)
            self.assertIn(f"--log-file: cannot open '{folder}'", errors_of(done)[0])

    def test_draft_tokens_change_no_text(self):
        ask = ("-m", Q8_0, "-p", "Tell me a story.", "-n", 60, "--temp", 0)
        plain = run(*ask).stdout
        for words in (("--draft-tokens", 4), ("--spec-type", "ngram-simple"), ("--draft-max", 3),
                      ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}')):
            self.assertEqual(run(*ask, *words).stdout, plain, words)
        ask = ("-m", Q8_0, "--raw", "-p", "x = 1\n" * 30, "-n", 150, "--ignore-eos", "--temp", 0)
        self.assertNotIn("drafts:", run(*ask).stderr)
        self.assertRegex(run(*ask, "--draft-tokens", 8).stderr, r"drafts: +\d+ of \d+ tokens accepted\n")
        for words in (("--spec-type", "draft-mtp"), ("--speculative-config", '{"method": "eagle"}'), ("-md", "x.gguf")):
            self.assertIn(words[0], self.refused(*words))

    def test_a_file_of_another_method_of_quantisation_is_refused(self):
        self.assertEqual(run(*self.ask, "--quantization", "gguf").returncode, 0)
        done = run(*self.ask, "--quantization", "fp8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--quantization: the checkpoint is not 'fp8' but 'gguf'", done.stderr)

    def test_another_chat_template(self):
        template = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}\n{% endfor %}{{ more }}"
        ask = ("-m", Q8_0, "-n", 12, "--temp", 0)
        wanted = run(*ask, "--raw", "-p", "<user>hi\n!").stdout
        kwargs = ("-p", "hi", "--chat-template-kwargs", '{"more": "!"}')
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "own.jinja")
            file.write_text("\ufeff" + template, encoding="utf-8")
            for words in (("--chat-template", template), ("--chat-template", file), ("--chat-template-file", file)):
                done = run(*ask, *kwargs, *words)
                self.assertEqual((done.returncode, done.stdout), (0, wanted), (words, done.stderr))
            self.assertEqual(run(*ask, *kwargs, env={**os.environ, "MINIM_CHAT_TEMPLATE": str(file)}).stdout, wanted)
            file.write_text("hello")
            for words in (("--chat-template", file), ("--chat-template-file", file), ("--chat-template-file", folder), ("--chat-template-file", "/nothing"),
                          ("--chat-template", "chatml"), ("--chat-template", "llama3"), ("--chat-template", "/nothing.jinja")):
                error = self.refused(*words)
                self.assertIn(f"{words[0]}: ", error)
                self.assertIn(f"'{words[1]}'", error)
        own = run(*self.ask).stdout
        for name in ("minimax-m2", ""):
            self.assertEqual(run(*self.ask, "--chat-template", name).stdout, own)
        done = run(*self.ask, "--chat-template", "{% for %}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("minim: error: chat_template: ", done.stderr)

    def test_a_grammar_bounds_the_answer(self):
        ask = ("-m", Q8_0, "-p", "hi", "-n", 200, "--temp", 2, "--seed", 3, "--reasoning-budget", 0)
        grammar = 'root ::= ("yes" | "no") digit{3}\ndigit ::= [0-9]\n'
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "own.gbnf")
            file.write_text(grammar)
            for words in (("--grammar", grammar), ("--grammar-file", file)):
                done = run(*ask, *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"\A(yes|no)\d{3}\n\Z")
            self.assertIn(f"--grammar-file: the file '{folder}' cannot be read", self.refused("--grammar-file", folder))
        done = run(*ask, "--grammar", "root ::= rot")
        self.assertEqual(done.returncode, 1)
        self.assertIn("rot", done.stderr)
        self.assertIn("--json-schema excludes --grammar", self.refused("-j", "{}", "--grammar", grammar))
        if SERVER:
            for words in (("--grammar", grammar), ("-jf", __file__), ("-j", "{}")):
                done = run_command("minim-server", "-m", str(Q8_0), *words)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"{words[0]}: it is for one answer", done.stderr)

    def test_variables_of_other_programs_are_named_in_one_note(self):
        settings = {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_SEED": "1", "SGLANG_CHAT_TEMPLATE": "x", "SGLANG_SEED": "", "VLLM_PLUGINS": "x"}
        done = run(*self.ask, env={**os.environ, **settings})
        [note] = [line for line in done.stderr.splitlines() if "VLLM_" in line or "SGLANG_" in line]
        for text in ("VLLM_LOGGING_LEVEL", "--verbose (MINIM_VERBOSE)", "VLLM_SEED", "--seed (MINIM_SEED)", "SGLANG_CHAT_TEMPLATE", " have no effect: "):
            self.assertIn(text, note)
        self.assertNotIn("VLLM_PLUGINS", note)
        self.assertNotIn("SGLANG_SEED", note)


class Plan(unittest.TestCase):
    """`minim plan` has the options that place layers and experts."""

    def plan(self, *arguments):
        done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "cuda:0=1GiB,100GB/s", "--host", "4GiB,50GB/s", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads(done.stdout)
        return made["devices"][0]["n_layers"], made["devices"][0]["n_experts"]

    def test_where_layers_and_experts_go(self):
        layers, experts = self.plan()
        self.assertEqual(layers, 3)
        self.assertEqual(self.plan("-ngl", "all"), (layers, experts))
        self.assertEqual(self.plan("-ngl", 2)[0], 2)
        for words in (("--cpu-moe",), ("-ot", "exps=CPU"), ("-ncmoe", 3), ("-ncmoe", 99)):
            self.assertEqual(self.plan(*words), (3, 0), words)
        for n in (1, -1):
            self.assertEqual(self.plan("--n-cpu-moe", n), (3, experts * 2 // 3))

    def test_no_device(self):
        for words in (("--device", "none"), ("-ngl", 0)):
            done = run("plan", "-m", Q8_0, "-c", 1024, "--host", "4GiB,50GB/s", "--json", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertEqual(json.loads(done.stdout)["devices"], [])

    def test_options_that_a_card_with_the_host_s_memory_refuses(self):
        for words, why in ((("--cpu-moe",), "--cpu-moe keeps"), (("-ncmoe", -2), "-ncmoe (-2) keeps"), (("-ot", "exps=CPU"), "-ot exps=CPU keeps")):
            done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "GB10", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, rf"^minim: error: {re.escape(why)} experts on the CPU, but .* possible \(-ngl\) \(MINIM_E_UNSUPPORTED\)$")

    def test_names_of_cards(self):
        done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "RTX 3090", "--host", "4GiB,50GB/s", "--json")
        self.assertEqual(json.loads(done.stdout)["devices"][0]["name"], "cuda:0")


class Ranks(unittest.TestCase):
    """Every program's names for the numbers of ranks."""

    def plan(self, *arguments):
        done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "2x RTX 3090", "--host", "4GiB,50GB/s", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["parallel"]

    def test_numbers_of_ranks_by_all_their_names(self):
        for name in ("-tp", "--tensor-parallel", "--tensor-parallel-size", "--tp-size", "--tp"):
            self.assertEqual(self.plan(name, 2), {"tensor": 2, "expert_groups": 1, "expert_parts": 2, "pipeline": 1})
        for mode in ("tensor", "row", "graph"):
            self.assertEqual(self.plan("-sm", mode)["tensor"], 2)
        self.assertEqual(self.plan("-sm", "layer")["tensor"], 1)
        for name in ("-ep", "--expert-parallel", "--expert-parallel-size", "--ep-size", "--ep"):
            self.assertEqual(self.plan(name, 2), {"tensor": 1, "expert_groups": 2, "expert_parts": 1, "pipeline": 1})
            self.assertEqual(self.plan("-tp", 2, name, 2)["expert_groups"], 2)
        whole = {"tensor": 2, "expert_groups": 2, "expert_parts": 1, "pipeline": 1}
        for words in (("--enable-expert-parallel",), ("-ep",), ("-ep", "all"), ("--expert-parallel=all",)):
            self.assertEqual(self.plan(*words, "-tp", 2), whole, words)
            self.assertEqual(self.plan("-tp", 2, *words), whole, words)
        for name in ("-pp", "--pipeline-parallel", "--pipeline-parallel-size", "--pp-size", "--pp"):
            self.assertEqual(self.plan(name, 2)["pipeline"], 2)

    def test_what_is_no_number_of_ranks_is_refused(self):
        for words in (("-tp", 0), ("-tp", "all"), ("--expert-parallel=-1",), ("-pp", "x"), ("-sm", "attn"), ("-sm", "none"), ("--rank-timeout", 1)):
            done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "2x RTX 3090", "--host", "4GiB,50GB/s", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(words[0].split("=")[0], done.stderr)

    def test_the_plan_shows_each_rank(self):
        done = run("plan", "-m", Q8_0, "-c", 1024, "--device", "2x RTX 3090", "--host", "4GiB,50GB/s", "-tp", 2, "--link", "9us,20GB/s")
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("2 ranks: tensor parallel 2; experts in 1 group, each expert in 2 parts", "rank 1 on cuda:1: 1 KV head of 3 layers, 1/2 of each of 24 experts",
                     "warning: layers on each device instead of parts of all layers: ", "  sums  "):
            self.assertIn(text, done.stdout)


class Places(unittest.TestCase):
    """The command line counts before the environment, the environment before the file."""

    def ask(self, *arguments, **settings):
        """Returns the summary of an answer."""
        done = run("-m", Q8_0, "-p", "hi", "-n", 2, *arguments, env={**os.environ, **settings})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def size(self, *arguments, **settings):
        return int(self.ask(*arguments, **settings).split("context ")[1].split(" of ")[1].split()[0])

    def test_which_place_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "minim.toml")
            file.write_text("# a comment\nctx-size = 512  # tokens\n[minim-server]\nport = 1\n[minim]\nseed = 7\n")
            self.assertEqual(self.size("--config", file), 512)
            self.assertIn("seed 7,", self.ask("--config", file))
            self.assertEqual(self.size(MINIM_CONFIG=str(file)), 512)
            self.assertEqual(self.size("--config", file, MINIM_CTX_SIZE="600"), 600)
            self.assertEqual(self.size("--config", file, "-c", 700, MINIM_CTX_SIZE="600"), 700)
            self.assertEqual(self.size(MINIM_MAX_MODEL_LEN="1K"), 1024)
            self.assertEqual(self.size(MINIM_CTX_SIZE=""), 4096)

    def test_what_is_wrong_is_named_with_its_place(self):
        for text, why in (("ctx-sise = 5\n", ":1: ctx-sise is not known; did you mean ctx-size?"), ("\n\nctx_size = five\n", ":3: ctx-size: 'five'"),
                          ("lora = a\n", ":1: lora: minim takes no adapters"), ("[nothing]\n", ":1: there is no program or command 'nothing'"),
                          ("words\n", ":1: 'words' is not of the form"), ('system = "a\n', ":1: a text is not closed"),
                          ("tensor-split = [1, 2\n", ":1: the list is not closed"), ("[minim-server]\nbad = 1\n", ":2: bad is not known"),
                          ("[minim] x\n", ":1: 'x' is not expected behind a name in brackets"), ("= 5\n", ":1: there is no name before the sign ="),
                          ("a\0b = 5\n", ":1: has a zero byte"), ("xq = 5\n", ":1: xq is not known"), ("embeddings = on\n", ":1: embeddings: minim generates text")):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "c.ini")
                file.write_text(text)
                done = run("-m", Q8_0, "-p", "hi", "--config", file)
                self.assertEqual(done.returncode, 2, text)
                self.assertIn(f"{file}{why}", done.stderr)
                self.assertNotIn("did you mean ?", done.stderr)
                done = run("-m", Q8_0, "-p", "hi", "--config", folder)
                self.assertIn(f"--config: the file '{folder}' cannot be read", done.stderr)
                self.assertIn("--config is there twice", run("-m", Q8_0, "-p", "hi", "--config", file, "--config", "b.ini").stderr)
        for name in ("--version", "--config", "--help", "-h"):
            self.assertIn(f"--log-file: its value is missing: {name} is an option", run("-m", Q8_0, "-p", "hi", "--log-file", name).stderr)
        self.assertIn("--config: its value is missing", run("-m", Q8_0, "-p", "hi", "--config=").stderr)
        self.assertIn("--config: the file '/nothing' cannot be read", run("-m", Q8_0, "-p", "x", "--config", "/nothing").stderr)
        done = run("-m", Q8_0, "-p", "x", env={**os.environ, "MINIM_CTX_SIZE": "five"})
        self.assertIn("MINIM_CTX_SIZE: 'five' is not", done.stderr)

    def test_names_of_files_of_other_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "models.ini")
            file.write_bytes(b"\xef\xbb\xbf[*]\r\nc = 640\r\nngl = 0  # none\r\nmmproj = none\r\nembeddings = off\r\nnnodes = 1\r\n")
            done = run("-m", Q8_0, "-p", "hi", "-n", 2, "--config", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" of 640", done.stderr)
        for name in ("mmproj", "embeddings", "nnodes"):
            self.assertIn(f"{name} has no effect", done.stderr)

    def test_variables_that_are_not_known(self):
        summary = self.ask(MINIM_CTXSIZE="600", MINIM_FLASH_ATTN="1", MINIM_PORT="9000", MINIM_EMBEDDINGS="0", MINIM_LORA="", MINIM_LOG="error")
        self.assertIn("minim: note: MINIM_CTXSIZE has no effect: there is no option --ctxsize; did you mean MINIM_CTX_SIZE?", summary)
        self.assertIn("minim: note: MINIM_FLASH_ATTN has no effect", summary)
        self.assertIn("minim: note: MINIM_EMBEDDINGS has no effect", summary)
        self.assertIn("MINIM_NGL has no effect: there is no option --ngl; did you mean MINIM_N_GPU_LAYERS?", self.ask(MINIM_NGL="5"))
        for name in ("MINIM_PORT", "MINIM_LORA", "MINIM_LOG"):
            self.assertNotIn(f"{name} has no effect", summary)
        done = run("-m", Q8_0, "-p", "hi", env={**os.environ, "MINIM_LORA": "a.gguf"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("MINIM_LORA: minim takes no adapters", done.stderr)
        self.assertEqual(run("-m", Q8_0, "-p", "hi", "-n", 1, "--embeddings=off").returncode, 0)
        self.assertEqual(run("-m", Q8_0, "-p", "hi", "-n", 1, "--embeddings").returncode, 2)

    @unittest.skipUnless(SERVER, "MINIM_SERVER is not set")
    def test_variables_of_a_service_called_minim(self):
        links = {"MINIM_PORT": "tcp://10.0.0.1:8080", "MINIM_SERVICE_HOST": "10.0.0.1", "MINIM_SERVICE_PORT": "8080", "MINIM_PORT_8080_TCP_ADDR": "10.0.0.1"}
        done = run_command("minim-server", "-m", str(Q8_0), "--version", **links)
        self.assertEqual((done.returncode, "MINIM_" in done.stderr), (0, False), done.stderr)
        self.assertEqual(run_command("minim-server", "-m", str(Q8_0), "--version", MINIM_PORT="x").returncode, 2)

    def test_what_has_no_effect_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "c.ini")
            file.write_text("port = 5\njinja = true\nmmap = false\nsystem = 'a\\b'\n")
            done = run("-m", Q8_0, "-p", "hi", "-n", 1, "--config", file, env={**os.environ, "LLAMA_ARG_CTX_SIZE": "5"})
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in (f"{file}:1: port has no effect: minim has no such option", f"{file}:2: jinja has no effect",
                     "LLAMA_ARG_CTX_SIZE has no effect: variables of minim begin with MINIM_, as MINIM_CTX_SIZE"):
            self.assertIn(f"minim: note: {line}", done.stderr)


class Published(unittest.TestCase):
    """Command lines as they are published for other programs, without the program's name."""

    def test_all_are_read_and_each_option_that_does_nothing_is_named(self):
        commands = json.loads((ROOT / "tests/data/published_commands.json").read_text(encoding="utf-8"))
        for command in commands:
            if command["program"] == "minim-server" and not SERVER:
                continue
            with self.subTest(command["from"]):
                words = [str(Q8_0) if word == "MODEL" else word for word in command["arguments"]]
                done = run_command(command["program"], *words, "--version")
                if command["refused"]:
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(command["refused"], done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)

    def server_lines(self):
        """Yields the command lines for minim-server that are in the repository, with the tiny model, and what is refused in each."""
        for command in json.loads((ROOT / "tests/data/published_commands.json").read_text(encoding="utf-8")):
            if command["program"] == "minim-server":
                yield [str(Q8_0) if word == "MODEL" else word for word in command["arguments"]], command["refused"]
        for line in (ROOT / "docs/recipes.md").read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            words = shlex.split(line) if line.startswith("minim-server ") else []
            if words:
                yield [str(Q8_0) if before == "-m" else word for before, word in zip(words, words[1:])], ""

    @unittest.skipUnless(SERVER, "minim-server is not built")
    def test_each_server_starts_or_names_what_it_lacks(self):
        n_started = n_short = 0
        for words, refused in self.server_lines():
            with self.subTest(" ".join(words)):
                code, log = start(words)
                if refused:
                    self.assertEqual(code, 2, log)
                    self.assertIn(refused, log)
                elif "modelopt_fp4" in words:  # minim-tiny has another format
                    self.assertEqual(code, 1, log)
                    self.assertIn("--quantization: the checkpoint is not 'modelopt_fp4' but 'gguf'", log)
                elif any(word in words for word in RANKS):  # there are fewer devices
                    self.assertEqual(code, 1, log)
                    n_short += 1
                    self.assertRegex(log.splitlines()[-1], r"KV heads cannot be divided among \d+ ranks|a pipeline of 3 stages needs 3 processes|rank, not \d"
                                     r"|error: device cuda:0: ")
                elif code == 1:  # the device that the line names does not exist
                    devices = words[words.index("--device") + 1].split(",")
                    self.assertTrue(any(f"error: device {device}: " in log.splitlines()[-1] for device in devices), log)
                else:
                    self.assertEqual(code, 0, log)
                    n_started += 1
                    if "-ngl" in words:
                        self.assertRegex(log, "-ngl.* no effect: only the CPU is usable|cuda:")
        self.assertGreater(n_started, 6)
        self.assertGreater(n_short, 4)

    def test_the_recipes_are_read(self):
        text = (ROOT / "docs/recipes.md").read_text(encoding="utf-8").replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.startswith(("minim plan ", "minim-server "))]
        self.assertGreater(len(lines), 15)
        for line in lines:
            program, *words = shlex.split(line)
            if program == "minim-server" and not SERVER:
                continue
            done = run_command("minim plan" if program == "minim" else program, *words[1 if program == "minim" else 0:], "--version")
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)


if __name__ == "__main__":
    unittest.main()
