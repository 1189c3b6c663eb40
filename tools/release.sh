#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, from the commit that is checked out, in OUTDIR (new or empty):
#
#   minim-V.tar.gz             the sources; all others are built from it
#   *_V_*.deb                  Debian packages
#   minim_m2-V-*.whl           the Python package with the library
#   minim*-V.crate             the Rust crates
#   minim-V-reference.html     the C reference
#   minim-V.spdx.json          the bill of materials: what the packages contain and depend on, with the versions found
#   SHA256SUMS
#
#   tools/release.sh [VERSION] OUTDIR [-DOPTION=VALUE ...]      the options are CMake's, for the packages
#
# With VERSION it must be the project's, no file may be changed, and CHANGELOG.md must give its date; without, it is a trial. An artefact
# whose tool is missing is left out and named at the end.
#
# MINIM_RELEASE_NETWORK=1: pip fetches what builds the wheel; else scikit-build-core must be installed.
# MINIM_RELEASE_BUILD: a build folder of this commit whose packages to take, instead of building for minutes.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
project=$(sed -n 's/^project(minim VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
PATH=/usr/bin:$PATH # the system's Python and compiler
export LC_ALL=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1
left_out=""

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

leave_out() {
    left_out="$left_out
left out: $*"
}

check_version() {
    [ "$1" = "$project" ] || fail "the version is $project (CMakeLists.txt), not $1"
    changed=$(git -C "$root" status --porcelain)
    [ -z "$changed" ] || fail "files are changed: $changed"
    grep -q "^## $1, [0-9]" "$root/CHANGELOG.md" || fail "CHANGELOG.md has no line '## $1, DATE'"
    for crate in minim-sys minim; do
        grep -q "^version = \"$1\"" "$root/bindings/rust/$crate/Cargo.toml" || fail "the crate $crate has another version than $1"
    done
}

# Builds the Debian packages, and names the build folder in `build`.
make_packages() {
    for tool in cpack dpkg-deb dpkg-shlibdeps file; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
    build=${MINIM_RELEASE_BUILD:-}
    if [ -z "$build" ]; then
        build=$work/build
        cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF -DMINIM_UNITY=ON "$@"
        cmake --build "$build"
    fi
    (cd "$work" && cpack -G DEB -C Release --config "$build/CPackConfig.cmake" -B "$work/packages") >"$work/cpack.log" 2>&1 || fail "cpack: $(cat "$work/cpack.log")"
    cp "$work"/packages/*.deb "$out"
}

make_wheel() {
    isolation="--no-index --no-build-isolation"
    if [ "${MINIM_RELEASE_NETWORK:-}" = 1 ]; then
        isolation=
    elif ! python3 -c "import scikit_build_core" 2>/dev/null; then
        leave_out "the wheel: scikit-build-core is missing (MINIM_RELEASE_NETWORK=1 fetches it)"
        return
    fi
    # shellcheck disable=SC2086 # none or one word each
    python3 -m pip wheel --no-deps $isolation -w "$out" "$source" >"$work/pip.log" 2>&1 || fail "pip wheel: $(tail -30 "$work/pip.log")"
}

make_crates() {
    if ! command -v cargo >/dev/null; then
        leave_out "the Rust crates: cargo is missing"
        return
    fi
    # The library is not built for it: tests/packages/release_check.sh builds what is in the crates.
    (cd "$source/bindings/rust" && CARGO_TARGET_DIR="$work/cargo" cargo package --quiet --workspace --offline --locked --no-verify --allow-dirty) >"$work/cargo.log" 2>&1 ||
        fail "cargo package: $(cat "$work/cargo.log")"
    cp "$work"/cargo/package/*.crate "$out"
}

version=$project
case ${1:-} in
    [0-9]*)
        version=$1
        check_version "$version"
        shift
        ;;
esac
[ $# -ge 1 ] || fail "usage: tools/release.sh [VERSION] OUTDIR [-DOPTION=VALUE ...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ -z "$(ls -A "$out")" ] || fail "the folder $out is not empty"
work=$(mktemp -d "${TMPDIR:-/tmp}/minim-release.XXXXXX")
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

archive=$out/minim-$version.tar.gz
"$root/tools/source_archive.sh" "$archive"
tar -xf "$archive" -C "$work"
source=$work/minim-$version
make_packages "$@"
make_wheel
make_crates
python3 "$source/tools/make_reference.py" "$out/minim-$version-reference.html"
python3 "$source/tools/make_sbom.py" --build "$build" --commit "$(git -C "$root" rev-parse HEAD)" --time "$SOURCE_DATE_EPOCH" "$out/minim-$version.spdx.json"
(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && cat SHA256SUMS)
[ -z "$left_out" ] || echo "$left_out"
