#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a folder with Debian's arm64 packages named as arguments and all that they need: what a cross compiler and qemu-user read.
# The packages are unpacked there, not installed, and apt keeps its state in the folder: the host's architectures do not change.
#
#   tools/make_arm64_root.sh FOLDER PACKAGE...
set -eu

[ $# -ge 2 ] || { echo "usage: $0 FOLDER PACKAGE..." >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
shift
# A folder that has these packages already stays as it is.
list="$root/.packages"
[ "$(cat "$list" 2>/dev/null)" != "$*" ] || exit 0

apt="$root/.apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts" "$apt/preferences"
: >"$apt/status" # no package is installed: apt resolves every dependency within arm64
sources=/etc/apt/sources.list.d/debian.sources
[ -e "$sources" ] || sources=/etc/apt/sources.list
cp "$sources" "$apt/parts/"
# apt drops root's rights to download, and that user may not read this folder.
set -- -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" \
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o Dir::Etc::SourceList=/dev/null \
    -o Dir::Etc::SourceParts="$apt/parts" -o Dir::Etc::PreferencesParts="$apt/preferences" -o APT::Sandbox::User=root \
    -o APT::Install-Recommends=false -o Debug::NoLocking=1 -- "$@"
options=""
while [ "$1" != -- ]; do
    options="$options $1"
    shift
done
shift
# shellcheck disable=SC2086 # the options are meant to split
apt-get $options update -qq
# shellcheck disable=SC2086
apt-get $options install -y -qq --download-only "$@" >/dev/null
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
rm -rf "$apt"
# Links to absolute paths would leave the folder.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -snf "$root$(readlink "$link")" "$link"
done
echo "$*" >"$list"
