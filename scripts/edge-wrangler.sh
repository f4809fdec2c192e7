#!/usr/bin/env bash
# Checks the edge worker and its wrangler.jsonc with wrangler. It runs `wrangler deploy` without deploying. It also runs
# `wrangler dev` on this machine; a test posts values to it, which must reach a real relay. Needs the Node packages of
# www (www/setup.sh) for Node 22. Installs wrangler from npm.
set -euo pipefail
cd "$(dirname "$0")/.."

node="$(compgen -G "$PWD/www/node_modules/node-linux-*/bin" | head -1)" ||
	{ echo "edge-wrangler.sh: missing node 22: run www/setup.sh" >&2; exit 1; }
export PATH="$node:$PATH" WRANGLER_SEND_METRICS=false CI=1
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
npm install --prefix "$dir" --no-audit --no-fund --loglevel=error wrangler@4.164.0 >&2
export WRANGLER="$dir/node_modules/.bin/wrangler"
go run ./www/build -edge build/edge
"$WRANGLER" deploy --dry-run --config wasm/edge/wrangler.jsonc --outdir "$dir/out"
go test -count=1 -tags workerd -timeout 10m -run WranglerDev -v ./wasm/edge
