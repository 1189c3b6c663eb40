# SPDX-License-Identifier: Apache-2.0
"""What is packaged beside the program: Containerfiles, checked without a registry, and the unit of systemd."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM, ROOT, Server

CONTAINERFILES = ("Containerfile", "Containerfile.cuda")
INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "USER", "VOLUME", "WORKDIR", "ENV", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
PROJECT = "\n".join(path.read_text() for path in (ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake"),
                                                  *(path for folder in ("apps", "capi", "cuda", "mpi", "lib") for path in (ROOT / folder).rglob("CMakeLists.txt"))))


def instructions(text):
    """Returns the (name, arguments) of a Containerfile, with lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n", " ", text).split("\n") if line.strip()]
    return [tuple((line.split(None, 1) + [""])[:2]) for line in lines]


def healthy(text):
    """Returns the command of HEALTHCHECK."""
    return next(arguments for name, arguments in instructions(text) if name == "HEALTHCHECK").partition("CMD ")[2]


def faults(text):
    """Returns what is wrong with a Containerfile of this project, as far as it can be seen without images."""
    found, stages, parts = [], [], instructions(text)
    found += [f"unknown instruction {name}" for name, _ in parts if name not in INSTRUCTIONS]
    arguments = {words.partition("=")[0]: words.partition("=")[2] for name, words in parts if name == "ARG"}
    for name, words in parts:
        for variable in re.findall(r"\$\{(\w+)\}", words):
            if variable not in arguments:
                found.append(f"{name}: no ARG {variable}")
        if name == "FROM":
            image, _, stage = words.partition(" AS ")
            image = re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), image)
            if not re.fullmatch(r"[a-z0-9./-]+:[\w.-]+", image):
                found.append(f"FROM: '{image}' has no tag")
            stages.append(stage)
        elif name == "COPY":
            source = re.match(r"--from=(\w+) ", words)
            if source and source[1] not in stages[:-1]:
                found.append(f"COPY: no stage {source[1]}")
            if not source:
                found += [f"COPY: no file {file}" for file in words.split()[:-1] if not (ROOT / file).exists()]
        elif name == "RUN":
            check = subprocess.run(["sh", "-n", "-c", words], capture_output=True, text=True)
            if check.returncode != 0:
                found.append(f"RUN: {check.stderr}")
            found += [f"RUN: no program {file}" for file in re.findall(r"/source/(\S+)", words) if not os.access(ROOT / file, os.X_OK)]
            known = ("CMAKE_BUILD_TYPE", "CMAKE_INSTALL_PREFIX", "BUILD_TESTING")
            found += [f"RUN: no option {option}" for option in re.findall(r"-D(\w+)=", words)
                      if option not in known and not re.search(rf"(option|set)\({option}\b", PROJECT)]
            targets = re.search(r"--target ([\w ]+?) *(&&|$)", words)
            found += [f"RUN: no target {target}" for target in (targets[1].split() if targets else ())
                      if not re.search(rf"(add_library|add_executable)\({target}\b", PROJECT) and target != "minim"]
            found += [f"RUN: no component {part}" for part in re.findall(r"--component (\w+)", words) if not re.search(rf"COMPONENT {part}\b", PROJECT)]
    last = dict(parts)  # the last of each
    if last.get("USER", "root") in ("root", "0"):
        found.append("USER: it runs as root")
    command = json.loads(last["ENTRYPOINT"])
    done = subprocess.run([PROGRAM, *command[1:], "--version"], capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        found.append(f"ENTRYPOINT: {done.stderr}")
    if last["EXPOSE"] != command[command.index("--port") + 1] or f":{last['EXPOSE']}/" not in healthy(text):
        found.append("EXPOSE: another port")
    return found


class Containers(unittest.TestCase):
    def test_they_are_sound(self):
        for name in CONTAINERFILES:
            self.assertEqual(faults((ROOT / name).read_text()), [], name)

    def test_the_one_for_gpus_differs_by_what_gpus_need(self):
        plain, cuda = ([line for line in instructions((ROOT / name).read_text()) if line[0] in ("USER", "VOLUME", "WORKDIR", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT")]
                       for name in CONTAINERFILES)
        self.assertEqual(plain, cuda)
        text = (ROOT / "Containerfile.cuda").read_text()
        self.assertIn(("ENV", "HF_HOME=/models"), instructions(text))
        self.assertIn("--component cuda", text)
        images = dict(words.split("=") for name, words in instructions(text) if name == "ARG" and ":" in words)
        self.assertEqual(images["DEVELOPMENT"].replace("-devel-", "-runtime-"), images["RUNTIME"])

    def test_faults_are_found(self):
        text = (ROOT / "Containerfile.cuda").read_text()
        for old, new, fault in (("COPY . /source", "COPY nothing /source", "COPY: no file nothing"), ("--from=build", "--from=base", "COPY: no stage base"),
                                ("install_packages.sh", "install.sh", "RUN: no program tools/install.sh"), ("-DMINIM_CUDA=ON", "-DMINIM_GPU=ON", "RUN: no option MINIM_GPU"),
                                ("minim_server minim_cuda", "minim_server minim_gpu", "RUN: no target minim_gpu"), ("--component cuda", "--component gpu", "RUN: no component gpu"),
                                ("USER minim", "USER root", "USER: it runs as root"), ('"--host"', '"--hosts"', "ENTRYPOINT: "), ("EXPOSE 8080", "EXPOSE 80", "EXPOSE: another port"),
                                ("FROM ${RUNTIME}", "FROM ${RUN}", "FROM: no ARG RUN"), ("&& rm -rf", "&& && rm -rf", "RUN: "), ("VOLUME", "VOLUMES", "unknown instruction VOLUMES")):
            self.assertIn(old, text)
            self.assertTrue([found for found in faults(text.replace(old, new)) if found.startswith(fault)], fault)

    @unittest.skipUnless(shutil.which("curl"), "skipped: curl is missing")
    def test_the_health_check(self):
        for name in CONTAINERFILES:
            command = healthy((ROOT / name).read_text())
            with Server() as server:
                self.assertEqual(subprocess.run(["sh", "-c", command.replace("8080", str(server.address[1]))]).returncode, 0)
                port = server.address[1]
            self.assertEqual(subprocess.run(["sh", "-c", command.replace("8080", str(port))], stderr=subprocess.DEVNULL).returncode, 1)

    @unittest.skipUnless(shutil.which("apt-cache"), "skipped: apt-cache is missing")
    def test_debian_has_the_packages(self):
        if 'VERSION_ID="12"' not in pathlib.Path("/etc/os-release").read_text():
            self.skipTest("not Debian 12")
        text = " ".join(words for name, words in instructions((ROOT / "Containerfile").read_text()) if name == "RUN")
        names = re.search(r"install_packages.sh ([^&]*?) cmake -S", text)[1].split() + re.search(r"--no-install-recommends ([^>]*)>", text)[1].split()
        self.assertGreater(len(names), 15)
        known = subprocess.run(["apt-cache", "--no-all-versions", "show", *names], capture_output=True, text=True).stdout
        found = set(re.findall(r"^Package: (.*)$", known, re.MULTILINE))
        if len(found) * 2 < len(names):
            self.skipTest("apt has no lists of packages")
        self.assertEqual(set(names) - found, set())


class Unit(unittest.TestCase):
    unit = (ROOT / "packaging/minim-server.service").read_text()

    @unittest.skipUnless(shutil.which("systemd-analyze"), "skipped: systemd is missing")
    def test_systemd_takes_it(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "minim-server.service")
            file.write_text(self.unit.replace("ExecStart=minim-server", f"ExecStart={PROGRAM}"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True)
            if "Failed to" in done.stderr and "bus" in done.stderr:
                self.skipTest(done.stderr)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", file], capture_output=True, text=True)
            level = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
            if level:  # since version 250
                self.assertLess(float(level[1]), 2.5)

    def test_the_settings_are_options(self):
        lines = (ROOT / "packaging/minim-server.env").read_text().splitlines()
        settings = dict(line.lstrip("#").split("=", 1) for line in lines if re.match(r"#?MINIM_", line))
        settings.update(re.findall(r"^Environment=(\w+)=(.*)$", self.unit, re.MULTILINE))
        self.assertGreater(len(settings), 6)
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder, "keys")
            keys.write_text("key\n")
            log = pathlib.Path(folder, "log")
            settings |= {"MINIM_API_KEY_FILE": str(keys), "MINIM_LOG_FILE": str(log), "MINIM_HOST": f"unix:{folder}/s.sock", "MINIM_MODEL": "/nothing.gguf"}
            del settings["MINIM_PORT"]  # a Unix socket has none
            done = subprocess.run([PROGRAM], capture_output=True, text=True, env={"PATH": os.environ["PATH"], **settings}, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertNotIn("has no effect", log.read_text())
            self.assertIn("/nothing.gguf", json.loads(log.read_text().splitlines()[-1])["message"])
        words = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout.replace(",", " ").split()
        for name in settings:
            self.assertIn("--" + name.removeprefix("MINIM_").lower().replace("_", "-"), words)

    def test_it_ends_after_the_requests(self):
        drain = int(re.search(r"^Environment=MINIM_DRAIN_TIMEOUT=(\d+)$", self.unit, re.MULTILINE)[1])
        self.assertLess(drain, int(re.search(r"^TimeoutStopSec=(\d+)$", self.unit, re.MULTILINE)[1]))


if __name__ == "__main__":
    unittest.main()
