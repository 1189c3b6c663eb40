# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of several ranks: programs under mpirun, with every process that they start. Without mpirun or NumPy they exit
with 77, which CTest reports as skipped."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

if shutil.which("mpirun") is None:
    print("skipped: mpirun is missing (openmpi-bin)")
    sys.exit(77)
try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: NumPy is missing")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = pathlib.Path(os.environ["MINIM_TEST_MODELS"])
Q8_0 = ROOT / "examples" / "models" / "minim-tiny-q8_0.gguf"
MIX_K = ROOT / "tests" / "data" / "models" / "minim-tiny-mix-k.gguf"
BF16 = MADE / "minim-tiny-bf16.gguf"
FP8 = MADE / "minim-tiny-fp8"
CLI, SERVER = os.environ["MINIM_CLI"], os.environ["MINIM_SERVER"]
PROGRAM = pathlib.Path(__file__).with_name("program.py")
IS_FULL = os.environ.get("MINIM_DISTRIBUTED_TESTS") == "full"
QUESTIONS = ["What is the capital of France?", "Count from 1 to 9.", "What is the weather in Paris?", "Hello!"]
LONG_PROMPT = [11 + 13 * i % 1900 for i in range(3500)]
SECONDS = 60  # for what takes a few on an idle machine

ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "MINIM_PLUGIN_PATH": os.environ["MINIM_MPI_FOLDER"],
    "PYTHONDONTWRITEBYTECODE": "1",
}


def simulated(text="devices=4"):
    """Returns the environment of programs with simulated devices, which they otherwise would choose by themselves."""
    return {"MINIM_PLUGIN_PATH": os.pathsep.join([os.environ["MINIM_MPI_FOLDER"], os.environ["MINIM_SIM_FOLDER"]]), "MINIM_SIM": text}


def under_mpirun(n, command, mpirun=()):
    """Returns the command on n processes; 0: without mpirun."""
    words = [str(word) for word in command]
    return ["mpirun", "--oversubscribe", "--bind-to", "none", *mpirun, "-n", str(n), *words] if n else words


def read_stat(pid):
    """Returns the fields of a process's state after its name; none if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def cpu_seconds(pid):
    fields = read_stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listening_ports(pid):
    """Returns the TCP ports that a process listens at."""
    links = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    own = {link[8:-1] for link in links if link.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split()
            is_listening = fields[3] == "0A"
            if is_listening and fields[9] in own:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


class Launch:
    """A running command in a session of its own. Leaving its block kills all that is left of it."""

    def __init__(self, command, **environment):
        self.folder = tempfile.TemporaryDirectory(prefix="minim-ranks-")
        self.files = {name: open(pathlib.Path(self.folder.name, name), "w+b") for name in ("output", "errors")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.files["output"], stderr=self.files["errors"], env={**ENVIRONMENT, **environment},
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for file in self.files.values():
            file.close()
        self.folder.cleanup()

    def text(self, name):
        return pathlib.Path(self.folder.name, name).read_text(encoding="utf-8", errors="replace")

    @property
    def output(self):
        return self.text("output")

    @property
    def errors(self):
        return self.text("errors")

    def pids(self):
        """Returns the living processes of the command's session."""
        living = []
        for entry in pathlib.Path("/proc").iterdir():
            fields = read_stat(entry.name) if entry.name.isdigit() else []
            if fields and int(fields[3]) == self.process.pid and fields[0] not in "ZX":
                living.append(int(entry.name))
        return living

    def pid_of(self, rank):
        """Returns the process of a rank."""
        for pid in self.pids():
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if any(re.fullmatch(rb"(OMPI_COMM_WORLD_RANK|PMI_RANK)=%d" % rank, variable) for variable in variables):
                return pid
        raise AssertionError(f"no process of rank {rank}: {self.errors}")

    def signal(self, rank, number):
        """Sends a signal to a rank. Returns the time."""
        pid = self.pid_of(rank)
        now = time.time()
        os.kill(pid, number)
        return now

    def wait(self, seconds=SECONDS):
        """Returns the exit code, or None after so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class Job(Launch):
    """program.py on n processes: `do` is the name of a function of it. Its leader reports values while it runs."""

    def __init__(self, n, do, *, mpirun=(), environment=None, **job):
        with tempfile.NamedTemporaryFile("w", prefix="minim-job-", suffix=".jsonl", delete=False) as file:
            self.report = pathlib.Path(file.name)
        text = json.dumps({"do": do, "report": file.name, **job}, default=str)
        super().__init__(under_mpirun(n, [sys.executable, PROGRAM, text], mpirun), **(environment or {}))

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        self.report.unlink()

    def reported(self):
        lines = self.report.read_text(encoding="utf-8").splitlines(keepends=True)
        return {name: value for line in lines if line.endswith("\n") for name, value in json.loads(line).items()}

    def wait_for(self, name, seconds=SECONDS):
        """Returns a value that the leader has reported, or will."""
        end = time.monotonic() + seconds
        while name not in self.reported():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{name} was not reported: exit code {self.process.poll()}\n{self.errors[-3000:]}")
            time.sleep(0.01)
        return self.reported()[name]


class Case(unittest.TestCase):
    def left_nothing(self, launch, seconds=10):
        end = time.monotonic() + seconds
        while launch.pids():
            self.assertLess(time.monotonic(), end, f"processes {launch.pids()} are left:\n{launch.errors[-2000:]}")
            time.sleep(0.02)

    def ended_well(self, launch, seconds=SECONDS):
        code = launch.wait(seconds)
        self.assertEqual(code, 0, launch.errors[-3000:])
        self.left_nothing(launch)

    def result_of(self, n, do, **job):
        """Returns what a job reports that ends well."""
        with Job(n, do, **job) as launch:
            self.ended_well(launch, 4 * SECONDS)
            return launch.reported()

    def refused(self, command, *facts, **environment):
        """Checks that a command fails with these facts on standard error, and says nothing on standard output."""
        with Launch([str(word) for word in command], **environment) as launch:
            code = launch.wait(30)
            self.assertNotIn(code, (0, None), launch.errors)
            self.assertEqual(launch.output, "")
            self.left_nothing(launch)
            for fact in facts:
                self.assertRegex(launch.errors, fact)


class Server(Launch):
    """minim-server on n processes; 0: without mpirun."""

    def __init__(self, n, *options, mpirun=(), **environment):
        self.log = tempfile.NamedTemporaryFile("r", suffix=".log")
        usual = ["-m", Q8_0, "--host", "127.0.0.1", "--port", 0, "-t", 1, "-c", 4096, "--parallel", 4, "--kv-tokens", 16384]
        super().__init__(under_mpirun(n, [SERVER, *usual, "--log-file", self.log.name, *options], mpirun), **environment)
        self.n, self.port = n, self.find_port()

    def find_port(self):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r" at http://127\.0\.0\.1:(\d+)", self.logged())
            if found:
                return int(found.group(1))
            time.sleep(0.01)
        errors = self.errors
        self.__exit__()
        raise AssertionError(f"the server does not listen:\n{errors}")

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        self.log.close()

    def logged(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def leader(self):
        return self.pid_of(0) if self.n else self.process.pid

    def ask(self, method, path, body=None, timeout=SECONDS):
        """Returns status and text of an answer, and the time of its end. Status 0: there was none, with the reason."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace"), time.time()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error), time.time()
        finally:
            connection.close()

    def chat(self, question, **fields):
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, **fields}
        return self.ask("POST", "/v1/chat/completions", body)
