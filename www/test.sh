#!/usr/bin/env bash
# The browser tests: type check, then the SDK and the demo page in real headless Chromium.
# Sets up what it needs (setup.sh); never skips.
set -euo pipefail
cd "$(dirname "$0")/.."

CHROMIUM="$(./www/setup.sh)"
export CHROMIUM

go run ./www/build
go run ./www/build -specs build/specs
go build -o build/testserver ./www/testserver
go build -o build/demo ./cmd/demo

cd www
npx --no-install tsc -p .
node --test --test-concurrency=1 --test-reporter=spec "$@" ../build/specs/*.mjs test/*.test.mjs
