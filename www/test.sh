#!/usr/bin/env bash
# The tests of www: type check and lint, then the SDK in Chromium, Node 22, workerd and, briefly, Firefox,
# and the pages. With "engines" first, the SDK's cases in every engine instead.
# Sets up what it needs (setup.sh); never skips.
set -euo pipefail
cd "$(dirname "$0")/.."

# Node 22 is among the locked packages.
node22() { echo "$PWD/node_modules/node-linux-$(node -p process.arch)"; }

what=${1:-}
[[ "$what" == engines ]] && shift
CHROMIUM="$(./www/setup.sh "$what")"
export CHROMIUM

go build -o build/ ./www/testserver ./cmd/demo
go run ./www/build
go run ./www/build -specs build/specs
./www/pack.sh
go run ./wasm/fuzzcases -n 2000 >build/fuzzcases.jsonl

cd www
PATH="$(node22)/bin:$PATH"
npx --no-install tsc -p .
npx --no-install oxlint --deny-warnings
files=(../build/specs/*.mjs test/*.test.mjs test/reader/*.test.ts)
minutes=10 # for each file
[[ "${DOONA_FULL:-}" == 1 ]] && minutes=60
if [[ $# -eq 0 && "${DOONA_FULL:-}" != 1 ]]; then # Every state of the pages takes minutes: make test-full PART=engines.
  set -- --test-skip-pattern '^in pictures'
fi
[[ "$what" == engines ]] && files=(test/runtimes.test.mjs test/engines/*.test.mjs) minutes=60
node --test --test-timeout=$((minutes * 60000)) --test-concurrency=2 --test-reporter=spec "$@" "${files[@]}"
