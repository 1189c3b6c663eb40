#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel, and installs it in a fresh virtual environment of each Python given: the getting started page and tests run, the
# import is quick, the wheel is small, and auditwheel (where it is installed) finds nothing missing. Exits with 77 where a tool is missing.
#
#   tests/packages/wheel.sh WORK [PYTHON...]      Pythons: 3.9 and later; without any, those on PATH
#
# With MINIM_TEST_NETWORK=1, build tools and NumPy are fetched; else they have to be installed. Pythons without NumPy are skipped then.
# MINIM_TEST_WHEEL names a wheel that is there already. SKBUILD_BUILD_DIR, of scikit-build-core, names a folder for objects that later runs use again.
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
shift
network=${MINIM_TEST_NETWORK:-}
largest_bytes=8000000
longest_import_us=200000
PATH=/usr/bin:$PATH # the system's Python builds
export LC_ALL=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1
unset MINIM_LIBRARY LD_LIBRARY_PATH PYTHONPATH # the library in the wheel

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "$*" >&2
    exit 1
}

python3 -m pip --version >/dev/null 2>&1 || skip "pip is missing"
python3 -m venv --help >/dev/null 2>&1 || skip "venv is missing"
[ -n "$network${MINIM_TEST_WHEEL:-}" ] || python3 -c "import scikit_build_core" 2>/dev/null || skip "scikit-build-core is missing"
isolation="--no-index --no-build-isolation"
[ -z "$network" ] || isolation=
rm -rf "$work"
mkdir -p "$work"

if [ -n "${MINIM_TEST_WHEEL:-}" ]; then
    cp "$MINIM_TEST_WHEEL" "$work"
else
    # shellcheck disable=SC2086 # none or one word each
    python3 -m pip wheel --no-deps $isolation -w "$work" "$source" >"$work/pip.log" 2>&1 || fail "pip wheel: $(tail -30 "$work/pip.log")"
fi
wheel=$(ls "$work"/*.whl)
case $wheel in
    *minim_m2-*-py3-none-*.whl) ;;
    *) fail "the wheel is named $wheel" ;;
esac
bytes=$(wc -c <"$wheel")
echo "$(basename "$wheel"): $bytes bytes"
[ "$bytes" -lt $largest_bytes ] || fail "the wheel has $bytes bytes, $largest_bytes at most"
if command -v auditwheel >/dev/null 2>&1; then
    auditwheel show "$wheel" | tee "$work/auditwheel.log"
    grep -q "is consistent with" "$work/auditwheel.log" || fail "auditwheel: no tag of a platform"
fi

# Runs the Python blocks of the getting started page, with the installed package.
cat >"$work/page.py" <<'END'
import re
import sys
import pathlib
import minim

assert pathlib.Path(minim.__file__).is_relative_to(sys.prefix), minim.__file__
assert not pathlib.Path(sys.argv[1]) in pathlib.Path(minim.__file__).parents, minim.__file__
page = (pathlib.Path(sys.argv[1]) / "docs/start/python.md").read_text(encoding="utf-8")
for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
    exec(compile(code, "python.md", "exec"), {"__name__": "__main__"})
END

# The least of some imports, in CPU time, which other programs do not lengthen; without what NumPy takes.
cat >"$work/import.py" <<'END'
import subprocess
import sys

PROGRAM = "import numpy, time; start = time.process_time(); import minim; print(int(1e6 * (time.process_time() - start)))"
print(min(int(subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True).stdout) for _ in range(7)))
END

if [ $# -eq 0 ]; then
    for minor in 9 10 11 12 13; do
        ! command -v python3.$minor >/dev/null || set -- "$@" "$(command -v python3.$minor)"
    done
fi
n_used=0
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    environment=$work/venv-$version
    if [ -n "$network" ]; then
        "$python" -m venv "$environment"
        "$environment/bin/pip" install -q "$wheel" || fail "pip install of the wheel with Python $version"
    else
        "$python" -c "import numpy" 2>/dev/null || { echo "Python $version: skipped, NumPy is missing"; continue; }
        "$python" -m venv --system-site-packages "$environment"
        "$environment/bin/pip" install -q --no-index "$wheel" || fail "pip install of the wheel with Python $version"
    fi
    answer=$(cd "$source" && "$environment/bin/python" "$work/page.py" "$source") || fail "Python $version: the page does not run"
    case $answer in
        *Paris*Paris*) ;;
        *) fail "Python $version: the page answers: $answer" ;;
    esac
    (cd "$source/tests/ffi" && MINIM_TEST_INSTALLED=1 MINIM_TEST_MODELS=/nonexistent PYTHONDONTWRITEBYTECODE=1 \
        "$environment/bin/python" -m unittest -q test_aio test_familiar test_states test_tokenizer >"$work/tests.log" 2>&1) ||
        fail "Python $version: $(tail -30 "$work/tests.log")"
    microseconds=$("$environment/bin/python" "$work/import.py")
    echo "Python $version: the page answers and the tests pass; import minim takes $((microseconds / 1000)) ms beside NumPy"
    [ "$microseconds" -lt $longest_import_us ] || fail "the import takes $microseconds us, $longest_import_us at most"
    n_used=$((n_used + 1))
done
[ $n_used -gt 0 ] || skip "no Python has NumPy"
