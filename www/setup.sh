#!/usr/bin/env bash
# Installs what the browser tests and measurements need on a fresh Debian-like machine: the Node packages of the lock
# files and Chromium; with "chromium" also old libraries; with "firefox" also Firefox; with "engines" also old libraries,
# Firefox, WebKitGTK, Deno, Bun and edge-runtime.
# Prints Chromium's path. Fails with a message if something is missing.
set -euo pipefail
cd "$(dirname "$0")"

missing() { echo "www/setup.sh: missing $1" >&2; exit 1; }

command -v npm >/dev/null || missing "npm and node 20 or newer: apt-get install nodejs npm"
(( $(node -p 'process.versions.node.split(".")[0]') >= 20 )) || missing "node 20 or newer: this one is $(node --version)"

# debian PACKAGE VARIABLE: installs a Debian package.
debian() {
	echo "www/setup.sh: installing $1" >&2
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1"; } >&2 ||
		missing "$1: apt-get could not install it; install it, or set $2 to its path"
}

# program PACKAGE COMMAND VARIABLE: installs a missing browser and prints its path, which $VARIABLE may name.
program() {
	local path="${!3:-$(command -v "$2" || true)}"
	if [[ -z "$path" ]]; then
		debian "$1" "$3"
		path="$(command -v "$2")"
	fi
	[[ -x "$path" ]] || missing "$1: $path is not a program"
	echo "$path"
}

# library PACKAGE FILE VARIABLE: installs a missing library. $VARIABLE may name its file.
library() { [[ -e "${!3:-$2}" ]] || debian "$1" "$3"; }
chromium="$(program chromium chromium CHROMIUM)"
[[ "${1:-}" != firefox && "${1:-}" != engines ]] || program firefox-esr firefox-esr FIREFOX >/dev/null

# packages FOLDER: installs the packages of the folder's lock file, unless node_modules has a copy of that lock file.
packages() (
	cd "$1"
	cmp -s package-lock.json node_modules/installed.json && return
	npm ci --no-audit --no-fund --loglevel=error >&2 ||
		missing "the Node packages of $1/package-lock.json: npm could not install them"
	cp package-lock.json node_modules/installed.json
)
packages .
packages test/recipes
if [[ "${1:-}" == chromium || "${1:-}" == engines ]]; then
	library libjs-prototype /usr/share/javascript/prototype/prototype.js PROTOTYPEJS
	library libjs-mootools /usr/share/javascript/mootools/mootools-core-nc.js MOOTOOLS
	packages test/libraries
fi
if [[ "${1:-}" == engines ]]; then
	program xvfb Xvfb XVFB >/dev/null
	program webkit2gtk-driver WebKitWebDriver WEBKITWEBDRIVER >/dev/null
	packages test/engines
fi
echo "$chromium"
