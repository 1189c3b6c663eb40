#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the soak tests one after another, each for about as many seconds, and prints a line of a table for each. The whole output is in
# BUILD/soak. The status is 1 if one of them fails.
#
#   tests/soak/run.sh [SECONDS [NAME...]]      10 seconds, all; MINIM_BUILD names the build folder, build/release if it is not set
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-10}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- fuzz engine server open_close failures kills disk_full memory_limit lost_file clock long_text
PATH=/usr/bin:$PATH # the system's Python has NumPy
export PYTHONDONTWRITEBYTECODE=1
out=${MINIM_BUILD:-$root/build/release}/soak
mkdir -p "$out"
failed=0
echo "| test | seconds | CPU seconds | result |"
echo "|---|---|---|---|"
for name in "$@"; do
    [ -f "$root/tests/soak/$name.py" ] || { echo "run.sh: no soak test is named '$name'" >&2; exit 2; }
    start=$(date +%s)
    (cd "$root/tests/soak" && exec python3 "$name.py" "$seconds") >"$out/$name.log" 2>&1
    status=$?
    last=$(grep -v '^CPU seconds: ' "$out/$name.log" | tail -1)
    cpu=$(sed -n 's/^CPU seconds: //p' "$out/$name.log" | tail -1)
    case $status in
        0) ;;
        77) ;; # the last line says why it was skipped
        *) failed=1; last="FAILED: $last" ;;
    esac
    echo "| $name | $(($(date +%s) - start)) | $cpu | $last |"
done
exit $failed
