#!/usr/bin/env bash
# Runs the tests of www: www/test.sh [chromium|node|firefox|workerd|engines|tools] [--long] [--poison] [FLAG OF node
# --test...]. With --poison, the modules have a pattern in all data that is cleared otherwise (docs/postlink.md).
# Every run builds, type-checks and lints first. chromium, the default: tests the SDK and the pages in Chromium. node:
# runs the SDK's cases in Node 22, and visits every state of the demo's page in pictures. firefox: runs some of the
# SDK's cases. workerd: runs all cases. engines: runs all cases in every engine. tools: tries the package with the tools
# of test/tools. Installs what it needs (setup.sh), and skips nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

# Prints the folder of Node 22, which www/package-lock.json includes.
node22() { echo "$PWD/node_modules/node-linux-$(node -p process.arch)"; }

what=chromium long= poison=
case "${1:-}" in chromium | node | firefox | workerd | engines | tools) what=$1 && shift ;; esac
[[ "${1:-}" == --long ]] && long=yes && shift
[[ "${1:-}" == --poison ]] && poison=yes && shift
CHROMIUM="$(./www/setup.sh "$what")"
export CHROMIUM

go build ${long:+-tags long} -o build/ ./www/testserver ./cmd/demo
go run ./www/build ${poison:+-poison}
go run ./www/build -specs build/specs
./www/pack.sh
go run ./wasm/fuzzcases -n 2000 >build/fuzzcases.jsonl

cd www
PATH="$(node22)/bin:$PATH"
npx --no-install tsc -p .
npx --no-install oxlint --deny-warnings
case "$what" in
firefox | workerd) files=("test/$what.test.mjs") ;;
tools) files=(test/tools/*.test.mjs) ;;
engines) files=(test/{chromium,node,workerd}.test.mjs test/engines/*.test.mjs) ;;
node) files=(test/{node,states}.test.mjs) ;;
chromium)
  files=(../build/specs/*.mjs test/reader/*.test.ts)
  for file in test/*.test.mjs; do
    case "$file" in
    test/firefox.test.mjs | test/workerd.test.mjs) ;;
    test/node.test.mjs | test/states.test.mjs) [[ -z "$long" ]] || files+=("$file") ;;
    *) files+=("$file") ;;
    esac
  done
  ;;
esac
# The tests "in pictures …" take minutes: only --long and `make test-full PART=engines` run them.
[[ "$what" != node || $# -gt 0 || -n "$long" ]] || set -- --test-skip-pattern '^in pictures'
minutes=10 # for each file
[[ -z "$long" && "$what" != engines && "$what" != tools ]] || minutes=60
node ${long:+--import=./test/long.mjs} --test --test-timeout=$((minutes * 60000)) --test-concurrency=4 \
  --test-reporter=spec "$@" "${files[@]}"
