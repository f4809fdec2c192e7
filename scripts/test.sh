#!/usr/bin/env bash
# Everything CI runs: formatting, vet, Go tests (scripts of the command lines and the demo among them),
# and the browser tests in real Chromium. Installs what a fresh Debian-like machine lacks; never skips.
set -euo pipefail
cd "$(dirname "$0")/.."

# As programs are shipped: what tests build of them is compiled once, in whichever folder.
export GOFLAGS="-trimpath ${GOFLAGS:-}" CGO_ENABLED=0

step() { printf '\n== %s\n' "$1"; }

step "formatting"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted by gofmt: $unformatted"
  exit 1
fi

step "go vet and staticcheck"
go vet ./...
GOOS=wasip1 GOARCH=wasm go vet ./wasm/... ./protocols/... ./wire/task ./randomizer ./accountant
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# Servers are tested under the race detector instead of without. It makes cryptography and SQLite, which is Go
# here, eight times slower. So tests that are mostly these run without it: those that count 10^5 orders, the road of
# every protocol, seeded worlds, what reports say of many draws and of every query, and what a thief or a malicious
# relay finds. The crash suite kills processes of its own, which the detector does not see. Nor does it look for
# misused unsafe pointers, of which only SQLite has any.
servers=$(go list ./relay/... ./issuer/... ./verifier/... ./wire/keyfile/... | grep -v /crashtest | sort)
heavy='Permute|RandomOrder|EveryProtocolEndToEnd|World|QuantilesAndMean|ProcessedIsPossible|ErrorBars'
heavy+='|AggregatesOfEveryProtocol|AChangedState|TheSameWordsEverywhere'
heavy+='|SlowClients|EndWhileDown|Seized|CascadesOfAnyLength|MaliciousFirstRelay|SealedOrder|SetBackAtEachHop'
heavy+='|SetBackOfLives|SurroundedClient|LessNoiseIsFound|RelaysAddDummies|BatchesPerEpoch'
heavy+='|CrashSpendsOnce|ServerGone|TestCascade$|SlowNextHop'
step "go test, with the race detector: relay, issuer, verifier, wire/keyfile"
# shellcheck disable=SC2086
CGO_ENABLED=1 go test -race -gcflags=all=-d=checkptr=0 -timeout 20m -skip "$heavy" $servers
step "go test: the heavy tests of these, and beside them everything else, command lines among it"
# shellcheck disable=SC2086
go test -timeout 20m -run "$heavy" $servers &
beside=$!
failed=0
# shellcheck disable=SC2046,SC2086
go test $(comm -23 <(go list ./... | sort) <(echo "$servers")) || failed=1
wait "$beside" || failed=1 # also where the others failed: nothing is left running
[ "$failed" = 0 ]

step "go test for GOOS=js, as the edge worker runs"
wasm_exec="$(go env GOROOT)/lib/wasm/go_js_wasm_exec"
GOOS=js GOARCH=wasm go test -exec "$wasm_exec" ./wire/task ./wire/codec ./wire/onion ./wire/token ./protocols/histogram ./protocols/realsum

step "fuzzers, briefly"
./scripts/fuzz.sh brief

step "browser: type check, SDK, page, in Chromium"
./www/test.sh

step "edge worker, in workerd"
GOOS=js GOARCH=wasm go vet ./wasm/edge/worker
go test -count=1 -tags workerd ./wasm/edge
