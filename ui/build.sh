#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the flame graph page: build.sh SRC_DIR BUILD_DIR OUT_FILE
#
# SRC_DIR is this directory; nothing is written there. Packages go to BUILD_DIR and are installed
# again only when package-lock.json changes, so a second run needs no network. OUT_FILE is replaced
# in one step, or left alone when anything fails.
set -eu

fail() {
	echo "ui/build.sh: $1" >&2
	exit 1
}

[ $# -eq 3 ] || fail "usage: build.sh SRC_DIR BUILD_DIR OUT_FILE"
command -v node >/dev/null || fail "node is not installed; install nodejs (18 or newer) to build the flame graph page"
command -v npm >/dev/null || fail "npm is not installed; install npm to build the flame graph page"
[ "$(node -p 'parseInt(process.versions.node)')" -ge 18 ] ||
	fail "node $(node -v) is too old to build the flame graph page; install 18 or newer"

src=$(cd "$1" && pwd)
mkdir -p "$2" || fail "cannot create the build directory $2"
build=$(cd "$2" && pwd)
out=$3

# The stamp is written last: an interrupted install is done again.
lock=$(cksum <"$src/package-lock.json")
if [ "$(cat "$build/.installed" 2>/dev/null)" != "$lock" ]; then
	rm -f "$build/.installed"
	cp "$src/package.json" "$src/package-lock.json" "$src/.npmrc" "$build/"
	(cd "$build" && npm ci --ignore-scripts --prefer-offline --fetch-retries=1 >npm.log 2>&1) ||
		fail "npm ci could not install the page's packages; check the network, then read $build/npm.log"
	echo "$lock" >"$build/.installed"
fi

exec node "$src/bundle.mjs" "$src" "$build" "$out"
