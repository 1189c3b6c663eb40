#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Containerfile and runs it as a reader would: an ordinary user, a model in /models, port 8080, and a health check that
# becomes good. By hand, for minutes; exits with 77 where no podman or docker works.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
tool=""
for candidate in podman docker; do
    if [ -z "$tool" ] && "$candidate" info >/dev/null 2>&1; then
        tool=$candidate
    fi
done
if [ -z "$tool" ]; then
    echo "skipped: neither podman nor docker works here"
    exit 77
fi

"$tool" build -q -f "$root/Containerfile" -t minim-test "$root" >/dev/null
id=$("$tool" run -d -p 127.0.0.1::8080 -v "$root/examples/models:/models:ro" minim-test -m /models/minim-tiny-q8_0.gguf -c 4096)
trap '"$tool" rm -f "$id" >/dev/null' EXIT
[ "$("$tool" exec "$id" id -u)" -ne 0 ] || { echo "the server runs as root" >&2; exit 1; }
seconds=0
until "$tool" exec "$id" curl -fsS http://127.0.0.1:8080/health >/dev/null 2>&1; do
    seconds=$((seconds + 1))
    [ "$seconds" -lt 60 ] || { "$tool" logs "$id" >&2; exit 1; }
    sleep 1
done
address=$("$tool" port "$id" 8080 | head -1)
curl -fsS "http://$address/v1/chat/completions" -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}' |
    grep -q Paris
