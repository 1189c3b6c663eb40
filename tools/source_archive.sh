#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the source archive of the commit that is checked out: the same bytes each time. Names, times (the commit's), owner and modes come
# from git alone; gzip stores neither a name nor a time.
#
#   tools/source_archive.sh FILE.tar.gz      its folder is named as the file, without .tar.gz
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
case $1 in
    *.tar.gz) ;;
    *) echo "source_archive.sh: the file must end with .tar.gz: '$1'" >&2; exit 2 ;;
esac
part=$1.part
trap 'rm -f "$part" "$part.gz"' EXIT
git -C "$root" -c tar.umask=0022 archive --format=tar --prefix="$(basename "$1" .tar.gz)/" HEAD >"$part"
gzip -9 -n <"$part" >"$part.gz"
mv "$part.gz" "$1"
