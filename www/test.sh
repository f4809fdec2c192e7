#!/usr/bin/env bash
# The browser tests: type check, then the SDK and the demo page in real headless Chromium.
# Sets up what it needs on a fresh Debian-like machine; fails, and says why, where it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() { echo "www/test.sh: missing $1" >&2; exit 1; }

command -v go >/dev/null || missing "go: install Go 1.26 or newer"
command -v npm >/dev/null || missing "npm and node 20 or newer: apt-get install nodejs npm"
(( $(node -p 'process.versions.node.split(".")[0]') >= 20 )) || missing "node 20 or newer: this one is $(node --version)"

if [[ -z "${CHROMIUM:-}" ]] && ! command -v chromium >/dev/null; then
	echo "www/test.sh: installing chromium" >&2
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >&2 ||
		missing "chromium: apt-get could not install it; install it, or set CHROMIUM to a Chromium's path"
fi
export CHROMIUM="${CHROMIUM:-$(command -v chromium)}"
[[ -x "$CHROMIUM" ]] || missing "chromium: CHROMIUM=$CHROMIUM is not a program"

(cd www && npm ci --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error >&2) ||
	missing "the Node packages of www/package-lock.json: npm ci could not install them"

go run ./www/build
go build -o build/testserver ./www/testserver
go build -o build/demo ./cmd/demo

cd www
npx --no-install tsc -p .
node --test --test-concurrency=1 --test-reporter=spec "$@" test/*.test.mjs
