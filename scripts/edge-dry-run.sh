#!/usr/bin/env bash
# What `wrangler deploy` would upload of the edge worker, by wrangler itself, without deploying. Needs the
# Node packages of www (www/setup.sh) for node 22.
set -euo pipefail
cd "$(dirname "$0")/.."

node="$(compgen -G "$PWD/www/node_modules/node-linux-*/bin" | head -1)" ||
	{ echo "edge-dry-run.sh: missing node 22: run www/setup.sh" >&2; exit 1; }
export PATH="$node:$PATH" WRANGLER_SEND_METRICS=false CI=1
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
npm install --prefix "$dir" --no-audit --no-fund --loglevel=error wrangler@4.164.0 >&2
go run ./www/build -edge build/edge
"$dir/node_modules/.bin/wrangler" deploy --dry-run --config wasm/edge/wrangler.jsonc --outdir "$dir/out"
