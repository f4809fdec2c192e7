#!/usr/bin/env bash
# What tests and measurements in a browser need, on a fresh Debian-like machine: node, the locked
# Node packages and Chromium. Prints Chromium's path; fails, and says what is missing.
set -euo pipefail
cd "$(dirname "$0")"

missing() { echo "www/setup.sh: missing $1" >&2; exit 1; }

command -v npm >/dev/null || missing "npm and node 20 or newer: apt-get install nodejs npm"
(( $(node -p 'process.versions.node.split(".")[0]') >= 20 )) || missing "node 20 or newer: this one is $(node --version)"

chromium="${CHROMIUM:-$(command -v chromium || true)}"
if [[ -z "$chromium" ]]; then
	echo "www/setup.sh: installing chromium" >&2
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >&2 ||
		missing "chromium: apt-get could not install it; install it, or set CHROMIUM to a Chromium's path"
	chromium="$(command -v chromium)"
fi
[[ -x "$chromium" ]] || missing "chromium: $chromium is not a program"

# Not npm ci: it refuses a lock without the packages of other platforms, which a registry may not have.
npm install --no-save --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error >&2 ||
	missing "the Node packages of www/package-lock.json: npm could not install them"
echo "$chromium"
