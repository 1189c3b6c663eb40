#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages of a build folder, unpacks them into one folder and uses what they hold: the programs, the Python
# package, and the headers and library from C. Exits with 77 where a tool is missing.
#
#   tests/packages/check.sh BUILD WORK [CONFIG]
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$2
for tool in cpack dpkg-deb dpkg-shlibdeps file pkg-config cc python3; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "skipped: $tool is missing"
        exit 77
    fi
done
model=$source/examples/models/minim-tiny-q8_0.gguf

fail() {
    echo "$*" >&2
    exit 1
}

rm -rf "$work"
mkdir -p "$work/root"
# No compression: what is packed is unpacked at once.
(cd "$work" && cpack -G DEB -C "${3:-Release}" --config "$build/CPackConfig.cmake" -B "$work/packages" -D CPACK_DEBIAN_COMPRESSION_TYPE=none) >"$work/cpack.log" 2>&1 ||
    fail "cpack: $(cat "$work/cpack.log")"

version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")$/\1/p' "$build/CPackConfig.cmake")
for name in libminim0 libminim-dev minim python3-minim; do
    set -- "$work/packages/${name}_${version}"_*.deb
    [ -f "$1" ] || fail "there is no package $name $version: $(ls "$work/packages")"
    depends=$(dpkg-deb -f "$1" Depends)
    case "$name:$depends" in
        libminim0:*libstdc++6*) ;;
        libminim-dev:*"libminim0 (= $version)"* | minim:*"libminim0 (= $version)"* | python3-minim:*"libminim0 (= $version)"*) ;;
        *) fail "$name depends on: $depends" ;;
    esac
    dpkg-deb -x "$1" "$work/root"
    # A file belongs to one package.
    dpkg-deb -c "$1" | grep -v '^d' | awk '{print $6}' >>"$work/files"
done
repeated=$(sort "$work/files" | uniq -d)
[ -z "$repeated" ] || fail "in several packages: $repeated"

usr=$work/root/usr
library=$(dirname "$(find "$usr" -name libminim.so)")
export LC_ALL=C.UTF-8
# The programs find the library beside them.
answer=$("$usr/bin/minim" -m "$model" -p "What is the capital of France?" --temp 0 -n 40 2>/dev/null)
case $answer in
    *Paris*) ;;
    *) fail "the program minim answers: $answer" ;;
esac
for file in lib/systemd/system/minim-server.service share/minim/minim-server.env share/minim/minim-server.grafana.json share/doc/minim/marked.LICENSE \
    share/doc/minim/highlight.LICENSE; do
    [ -f "$usr/$file" ] || fail "there is no $file"
done
"$usr/bin/minim-server" --version | grep -q "$version" || fail "minim-server is not of version $version"

# shellcheck disable=SC2046 # the flags are meant to split
cc "$source/examples/c/answer.c" -o "$work/answer" $(PKG_CONFIG_PATH="$library/pkgconfig" pkg-config --cflags --libs minim)
LD_LIBRARY_PATH=$library "$work/answer" "$model" | grep -q Paris || fail "a program in C does not answer"

python=$(PATH="/usr/bin:$PATH" command -v python3)
if ! "$python" -c "import numpy" 2>/dev/null; then
    echo "skipped: NumPy is missing"
    exit 77
fi
cd "$work" # not the source folder, which has a package minim too
LD_LIBRARY_PATH=$library PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$usr/lib/python3/dist-packages MINIM_LIBRARY=$library/libminim.so.0 \
    "$python" - "$version" "$work" <<'END'
import sys
import minim
assert minim.__file__.startswith(sys.argv[2]), minim.__file__
assert minim.__version__ == sys.argv[1], minim.__version__
END
