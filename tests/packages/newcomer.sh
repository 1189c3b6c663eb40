#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does what a newcomer does: types the first commands of README's quick start in a fresh Debian root, as root and with the network, and looks
# at the answers and at the chat page. Takes as long as README says or longer. Exits with 77 if no such root can be made here.
#
#   tests/packages/newcomer.sh WORK [SUITE] [COMPILER]      bookworm or trixie; clang: with CC=clang CXX=clang++
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { echo "usage: $0 WORK [SUITE] [COMPILER]" >&2; exit 2; }
mkdir -p "$1"
work=$(cd "$1" && pwd)
suite=${2:-bookworm}
compiler=${3:-gcc}
# The first archive of packages that this machine installs from, which has both suites.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -1)
root=$work/$suite-$compiler

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "$*" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || skip "a root of Debian can only be made by root"
for tool in debootstrap unshare chroot git; do
    command -v "$tool" >/dev/null 2>&1 || skip "$tool is missing"
done
[ -n "$mirror" ] || skip "this machine knows no archive of Debian packages"
unshare --mount --pid --fork true 2>/dev/null || skip "namespaces cannot be made here"
if [ ! -e "$work/$suite.tar" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
        reason=$(grep '^E:' "$work/debootstrap.log" | tail -1)
        rm -rf "$root"
        skip "debootstrap of $suite: ${reason:-it failed}"
    }
    tar -C "$root" -cf "$work/$suite.tar.part" .
    mv "$work/$suite.tar.part" "$work/$suite.tar"
fi
rm -rf "$root"
mkdir "$root"
tar -C "$root" -xf "$work/$suite.tar"

mkdir "$root/minim"
git -C "$source" archive HEAD | tar -x -C "$root/minim"
# The commands of the first block of README up to the first empty line. The server runs until it has been asked.
awk '/^```sh$/ {inside = 1; next} inside && (/^$/ || /^```$/) {exit} inside' "$root/minim/README.md" >"$root/commands"
grep -q '^minim -m' "$root/commands" && grep -q '^minim-server -m' "$root/commands" || fail "README's first commands do not ask minim and start minim-server"
cat >"$root/type.sh" <<'END'
set -eu
shopt -s expand_aliases
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
if [ "$1" != gcc ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$1" >/dev/null
    export CC=$1 CXX=$1++
fi
# The root has no client of HTTP.
ask() { # METHOD PATH [BODY]
    body=${3:-}
    exec 3<>/dev/tcp/127.0.0.1/8080 || return 1
    printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' "$1" "$2" "${#body}" "$body" >&3
    tr -d '\0' <&3
    exec 3>&-
}
cd /minim
while IFS= read -r line; do
    echo "$SECONDS s \$ $line"
    case $line in
        minim-server*)
            eval "$line &"
            seconds=0
            until page=$(ask GET /) && [ -n "$page" ]; do
                seconds=$((seconds + 1))
                [ $seconds -lt 60 ] || exit 1
                sleep 1
            done
            case $page in
                *"200 OK"*"<html"*) ;;
                *) echo "the chat page is: $page"; exit 1 ;;
            esac
            answer=$(ask POST /v1/chat/completions '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}')
            echo "$answer"
            kill %1
            wait
            ;;
        *) eval "$line" ;;
    esac
done </commands
END
# Nothing of this machine but the kernel, its name servers and, if apt uses one here, the proxy.
cp /etc/resolv.conf "$root/etc/resolv.conf"
proxies=$(env | grep -i '^https\?_proxy=' || true)
log=$work/$suite-$compiler.log
start=$(date +%s)
# shellcheck disable=SC2086,SC2016 # one word each; the inner shell expands them
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root $proxies unshare --mount --pid --fork sh -c \
    'mount -t proc none "$1/proc" && mount --bind /dev "$1/dev" && exec chroot "$1" bash /type.sh "$2"' sh "$root" "$compiler" >"$log" 2>&1 ||
    fail "$suite, $compiler: $(tail -20 "$log")"
echo "$suite, $compiler: $(($(date +%s) - start)) seconds; each command began after"
grep '^[0-9]* s \$' "$log"
[ "$(grep -c 'Paris' "$log")" -ge 2 ] || fail "$suite, $compiler: no answer in $log"
grep -q 72 "$log" || fail "$suite, $compiler: nobody adds up in $log"
rm -rf "$root"
