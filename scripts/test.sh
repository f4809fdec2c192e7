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
go vet -tags long ./...
GOOS=wasip1 GOARCH=wasm go vet ./wasm/... ./protocols/... ./wire/task ./randomizer ./accountant
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

step "the other modules: vet, staticcheck, and the laboratory's tests"
for other in beam lab; do
  (cd "$other" && go vet ./... && go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...)
done
go -C lab test -count=1 ./... # Documents outside of the module are no reason for Go to run a test again.

step "go test"
go test -timeout 20m ./relay ./... # The longest first: else the others are done, and it is waited for alone.

# The race detector makes cryptography and SQLite, which is Go here, eight times slower. So it looks here at what servers
# do for several at once; make test-full PART=race has it look at all their tests.
at_once='ParallelLimit|LimitAndReplay|Drain|EpochEnd|OneTaskFails|Overload|OneNetworkTakesAShare|MemoryIsReserved'
at_once+='|SmallMemory|FloodedTask|ConnectionLimit|NobodyWaitsForever|NothingMixes|Twins|TokenRace|News|RetriedMix'
at_once+='|OwnersShareMemory|HeardWhileSealing|StoresRace|StoresSealOnce|Together|SetBackRace|AtOnce|AtWork|QuotaIsExact'
at_once+='|TwoStoresOneKey|OneTaskThenTwo|PulledOnce|ReportIsMadeOnce|ReportsThroughTwoRelays|ThePageAndItsJSON'
step "go test, with the race detector: what servers do at once"
# shellcheck disable=SC2086
./scripts/race.sh -run "$at_once"

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
