#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages named as arguments that are not there yet, through the system's package manager.
# Needs root or sudo only where something is missing.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "Not a Debian system: make sure that what these packages hold is installed: $*" >&2
    exit 0
fi

missing=""
for package in "$@"; do
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1; then
    as_root="sudo"
else
    echo "These packages are missing and can only be installed by root:$missing" >&2
    exit 1
fi
echo "Installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to split
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
