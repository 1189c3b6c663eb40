#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the example service of the Rust crate two questions over one connection, beside another that goes away.

usage: ask_service.py PROGRAM MODEL
"""

import socket
import subprocess
import sys


def main():
    service = subprocess.Popen([*sys.argv[1:], "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        line = service.stderr.readline().split()
        assert line[:2] == ["listening", "on"], line
        host, port = line[2].rsplit(":", 1)
        address = (host, int(port))
        with socket.create_connection(address, timeout=60) as gone:
            gone.sendall("Tell a \"long\" story.\n".encode())
        with socket.create_connection(address, timeout=120) as client, client.makefile("rw", encoding="utf-8") as file:
            for question in ("What is the capital of France?", "And \\ of Italy?"):
                file.write(question + "\n")
                file.flush()
                answer = []
                while (line := file.readline()) not in ("\n", ""):
                    answer.append(line)
                print("".join(answer))
                assert "".join(answer).strip(), "no answer"
    finally:
        service.kill()
        service.wait()


if __name__ == "__main__":
    main()
