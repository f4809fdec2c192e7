#!/usr/bin/env bash
# Everything CI runs: formatting, vet, Go tests (scripts of the command lines and the demo among them),
# and the browser tests in real Chromium. Installs what a fresh Debian-like machine lacks; never skips.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$1"; }

step "formatting"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted by gofmt: $unformatted"
  exit 1
fi

step "go vet"
go vet ./...
GOOS=wasip1 GOARCH=wasm go vet ./wasm/... ./protocols/... ./wire/task ./randomizer ./accountant

step "go test, command lines among them"
go test ./...

step "fuzzers, briefly"
./scripts/fuzz.sh brief

step "browser: type check, SDK, page, in Chromium"
./www/test.sh

step "edge worker, in workerd"
GOOS=js GOARCH=wasm go vet ./wasm/edge/worker
go test -count=1 -tags workerd ./wasm/edge
