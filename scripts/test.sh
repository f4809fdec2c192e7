#!/usr/bin/env bash
# Runs the tests in parts: scripts/test.sh [test|check|PART...]. test, the default, runs the parts of make test; check
# runs those of make check. Both are listed below. Installs what a fresh Debian-like machine lacks. Skips no test.
set -euo pipefail
cd "$(dirname "$0")/.."

# Build as for a release. With -trimpath, Go compiles what tests build only once, whatever the folder.
export GOFLAGS="-trimpath ${GOFLAGS:-}" CGO_ENABLED=0

test_parts="format go chromium"
check_parts="race staticcheck fuzz toy js node workerd firefox docs"

format() {
  local unformatted
  unformatted=$(git ls-files '*.go' | xargs gofmt -l)
  [ -z "$unformatted" ] || { echo "not formatted by gofmt: $unformatted"; return 1; }
}

# Runs all of vet's checks, which reuse the tests' build. The part staticcheck runs vet for other build tags and
# platforms.
go_tests() {
  # Packages with servers mostly wait for disks, timers and each other, so one package more than cores runs at a time.
  # ./relay comes first, as it takes the longest.
  go test -vet=all -tags postgres -timeout 20m -p $(($(nproc) + 1)) ./relay ./...
  # The tests read documents outside of their module, whose changes Go does not notice.
  go -C lab test -vet=all -count=1 ./...
}

# Runs type check and lint, the SDK in Chromium, and the pages.
chromium() { ./www/test.sh chromium; }

# Runs all server packages under the race detector. It does not check unsafe pointers, which only SQLite uses. It does
# not cover the processes that the crash tests kill.
race() {
  local packages
  packages=$(go list ./relay/... ./issuer/... ./verifier/... ./wire/keyfile/... ./internal/service/... \
    ./internal/durable/... ./internal/clock/... ./internal/ledger/... ./internal/taskstream/... | grep -v /crashtest)
  # shellcheck disable=SC2086
  CGO_ENABLED=1 go test -race -tags postgres -gcflags=all=-d=checkptr=0 -timeout 60m $packages
}

# Covers all three Go modules, and runs vet for the build tags and platforms that make test does not build for.
staticcheck() {
  local other tags
  go vet ./...
  for tags in "" long; do go -C beam vet -tags "$tags" ./...; done
  go vet -tags workerd,long ./wasm/edge
  GOOS=wasip1 GOARCH=wasm go vet ./wasm/... ./protocols/... ./wire/task ./randomizer ./accountant
  GOOS=js GOARCH=wasm go vet ./wasm/edge/worker
  for other in . lab; do go -C "$other" vet -tags long,postgres ./...; done
  for other in . beam lab; do
    (cd "$other" && go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags long,postgres ./...)
  done
}

fuzz() { ./scripts/fuzz.sh brief; }

# Adds a protocol by a patch to a copy of the module, and runs the copy's tests.
toy() { go test -count=1 -tags check -run TestToyProtocol ./protocols/registry; }

# Runs packages as the edge worker does, under GOOS=js.
js() {
  GOOS=js GOARCH=wasm go test -exec "$(go env GOROOT)/lib/wasm/go_js_wasm_exec" ./wire/task ./wire/codec ./wire/onion \
    ./wire/token ./protocols/histogram ./protocols/realsum
}

# Runs the SDK in Node, and visits every state of the pages in pictures.
node() { ./www/test.sh node; }

# Runs the edge worker and the SDK in workerd.
workerd() {
  ./www/test.sh workerd
  go test -count=1 -tags workerd ./wasm/edge
}

firefox() { ./www/test.sh firefox; }

docs() { ./scripts/docs.sh; }

run() {
  local begin=$SECONDS
  printf '\n== %s\n' "$1"
  case "$1" in
    go) go_tests ;;
    format | chromium | race | staticcheck | fuzz | toy | js | node | workerd | firefox | docs) "$1" ;;
    *) echo "unknown part $1: want some of $test_parts $check_parts" >&2; exit 2 ;;
  esac
  printf '== %s: %d s\n' "$1" "$((SECONDS - begin))"
}

parts=("$@")
case "${1:-test}" in
  test) read -ra parts <<<"$test_parts" ;;
  check) read -ra parts <<<"$check_parts" ;;
esac
for part in "${parts[@]}"; do run "$part"; done
