#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the artefacts of a release and uses them in fresh folders, with nothing of the source folder but the model: a C program from the
# Debian packages, a Python program from the wheel (from python3-minim if there is no wheel), a Rust program from the crates. All give the
# same greedy text, with the best instruction set of this machine and with AVX2. Exits with 77 if a tool is missing.
#
#   tests/packages/release_check.sh BUILD WORK
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$2
for tool in git cpack dpkg-deb dpkg-shlibdeps file pkg-config cc python3; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "skipped: $tool is missing"
        exit 77
    fi
done
if ! git -C "$source" rev-parse HEAD >/dev/null 2>&1; then
    echo "skipped: $source is no checkout of git"
    exit 77
fi

fail() {
    echo "$*" >&2
    exit 1
}

rm -rf "$work"
mkdir -p "$work/root" "$work/user"
MINIM_RELEASE_BUILD=$build "$source/tools/release.sh" "$work/out" || fail "tools/release.sh failed"
set -- "$work"/out/minim-*.tar.gz
archive=$1
name=$(basename "$archive" .tar.gz)
version=${name#minim-}

"$source/tools/source_archive.sh" "$work/$name.tar.gz"
cmp "$archive" "$work/$name.tar.gz" || fail "the second source archive has other bytes than the first"
(cd "$work/out" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS"
[ "$(wc -l <"$work/out/SHA256SUMS")" -eq $(($(find "$work/out" -type f | wc -l) - 1)) ] || fail "SHA256SUMS does not name every artefact"
grep -q '"versionInfo": "'"$version"'"' "$work/out/$name.spdx.json" || fail "the bill of materials has no version"
grep -q minim_generate "$work/out/$name-reference.html" || fail "the reference has no minim_generate"
if (cd "$work" && "$source/tools/release.sh" 99.0.0 "$work/none") 2>"$work/refused"; then fail "version 99.0.0 is accepted"; fi
grep -q "the version is $version" "$work/refused" || fail "an unclear error: $(cat "$work/refused")"
if "$source/tools/release.sh" "$work/out" 2>"$work/refused"; then fail "a folder that is not empty is accepted"; fi
grep -q "is not empty" "$work/refused" || fail "an unclear error: $(cat "$work/refused")"

for package in "$work"/out/*.deb; do dpkg-deb -x "$package" "$work/root"; done
usr=$work/root/usr
library=$(dirname "$(find "$usr" -name libminim.so)")
cp "$source/examples/models/minim-tiny-q8_0.gguf" "$work/user/model.gguf"
cp "$source/tests/packages/greedy.c" "$work/user"
cd "$work/user"
unset MINIM_LIBRARY PYTHONPATH MINIM_CPU
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

# shellcheck disable=SC2046 # the flags are meant to split
cc greedy.c -o greedy $(PKG_CONFIG_PATH="$library/pkgconfig" pkg-config --cflags --libs minim)
c() { LD_LIBRARY_PATH=$library ./greedy model.gguf; }

cat >greedy.py <<'END'
import minim
with minim.Model("model.gguf") as model, model.session(context=2048) as session:
    print("".join(token.text for token in session.generate(messages=[{"role": "user", "content": "What is the capital of France?"}])))
END
python=$(PATH="/usr/bin:$PATH" command -v python3)
programs=c
if ! "$python" -c "import numpy" 2>/dev/null; then
    echo "Python: skipped, NumPy is missing"
elif [ -n "$(find "$work/out" -name '*.whl')" ]; then
    "$python" -m venv --system-site-packages "$work/venv"
    "$work/venv/bin/pip" install -q --no-index "$work"/out/*.whl
    python() { "$work/venv/bin/python" greedy.py; }
    programs="$programs python"
else
    echo "Python: from python3-minim, for there is no wheel"
    python() { PYTHONPATH=$usr/lib/python3/dist-packages MINIM_LIBRARY=$library/libminim.so.0 "$(PATH="/usr/bin:$PATH" command -v python3)" greedy.py; }
    programs="$programs python"
fi

if [ -n "$(find "$work/out" -name '*.crate')" ]; then
    for crate in "$work"/out/*.crate; do tar -xf "$crate" -C "$work"; done
    mkdir -p rust/src
    cp "$work/$name/examples/answer.rs" rust/src/main.rs
    cat >rust/Cargo.toml <<END
[package]
name = "user"
version = "1.0.0"
edition = "2021"
[dependencies]
minim = "$version"
[patch.crates-io]
minim = { path = "$work/$name" }
minim-sys = { path = "$work/minim-sys-$version" }
END
    (cd rust && MINIM_LIB_DIR=$library CARGO_TARGET_DIR=$work/target cargo build --quiet --offline)
    rust() { LD_LIBRARY_PATH=$library "$work/target/debug/user" model.gguf; }
    programs="$programs rust"
    # The crates have no sources of the library, and say so.
    sed -i "s/^minim = \"$version\"/minim = { version = \"$version\", features = [\"vendored\"] }/" rust/Cargo.toml
    if (cd rust && CARGO_TARGET_DIR=$work/target cargo build --quiet --offline) 2>"$work/refused"; then fail "the crates alone build the library"; fi
    grep -q "the sources of minim are not in" "$work/refused" || fail "an unclear error: $(tail -5 "$work/refused")"
else
    echo "Rust: skipped, there are no crates"
fi

levels=best
! grep -qw avx2 /proc/cpuinfo || levels="best avx2"
first=
for level in $levels; do
    for program in $programs; do
        [ "$level" = best ] || export MINIM_CPU="$level"
        text=$($program) || fail "the program in $program fails with $level kernels"
        unset MINIM_CPU
        hash=$(printf %s "$text" | sha256sum | cut -c1-16)
        echo "$program, $level kernels: $hash"
        first=${first:-$hash}
        [ "$hash" = "$first" ] || fail "the program in $program, with $level kernels, prints another text: $text"
        case $text in
            *Paris*) ;;
            *) fail "the program in $program answers: $text" ;;
        esac
    done
done
