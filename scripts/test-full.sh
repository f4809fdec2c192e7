#!/usr/bin/env bash
# The long forms of the tests, one part, or all whose results are older than what they test: testdata/parts.json.
# Each part writes docs/results/PART.json: the commit, how long it took and whether it passed, and
# what it measured; docs/results.md is made of these. All of them may be stopped and go on with what is left.
set -euo pipefail
cd "$(dirname "$0")/.."
parts="accountant protocols coverage audit order race mutants crash setback world streams fuzz tls load size scale bench edge engines strings beam figures release"
mkdir -p docs/results
export GOFLAGS="${GOFLAGS:-} -count=1" # runs what has run before

# Node 22 is among the locked packages.
node22() { echo "$PWD/www/node_modules/node-linux-$(node -p process.arch)"; }

run_part() {
  case "$1" in
    accountant) go test -tags long -timeout 60m ./accountant/... ;;
    protocols)
      DOONA_FULL=1 go test -timeout 60m ./randomizer/... ./protocols/...
      DOONA_FULL=1 go test -timeout 60m -run 'NoiseDistribution|Soak|DamagedTasks' ./wasm
      DOONA_FULL=1 ./www/test.sh --test-name-pattern 'a stop at any function|one instance reports' ;;
    coverage)
      DOONA_FULL=1 go test -timeout 60m -v -run 'QuantilesAndMean|ProcessedIsPossible|BandsOverEpochs' ./verifier
      DOONA_FULL=1 go test -timeout 60m -v -run 'EveryFaultIsNamed|ServeNames|VerifyNames|ShardsGive' ./verifier
      go test -timeout 30m -v -run 'OneTaskThenTwoThenOne|FilesOfBothLayouts' ./verifier/server
      DOONA_FULL=1 go test -timeout 30m -v -run 'KilledServe|KilledAnalyze|FaultsAreNamed' ./cmd/verifier
      go test -timeout 30m -v -run 'FastPath|FastLocal' ./planner ./protocols/vectormean
      DOONA_FULL=1 go test -timeout 60m -v -run 'RelaysNoiseIsAsPromised|CorrelatedIsUsable|PlansPredict' ./planner
      DOONA_FULL=1 DOONA_FIGURES="$figures" go test -timeout 180m -run IntervalsCover -v ./planner ;;
    audit)
      go -C lab run . audit --out ../docs/audit.md --json | tail -1 >"$figures"
      DOONA_FULL=1 go test -timeout 60m -v -run 'SurroundedClient|ReplayedSlot|LessNoiseIsFound|BatchesPerEpoch' ./relay ;;
    race) # But for tests that are mostly one draw or order after another: eight times as long, and nothing is shared.
      local alone='Permute|RandomOrder|EveryProtocolEndToEnd|World|QuantilesAndMean|ProcessedIsPossible|ErrorBars|Seized'
      alone+='|AggregatesOfEveryProtocol|AChangedState|TheSameWordsEverywhere|CascadesOfAnyLength|MaliciousFirstRelay'
      alone+='|SealedOrder|SetBackOfLives|SurroundedClient|LessNoiseIsFound|BatchesPerEpoch|CrashSpendsOnce|TestFull$'
      ./scripts/race.sh -skip "$alone" ;;
    order) DOONA_FULL=1 go test -timeout 60m -run ProcessesPermute -v ./relay ;;
    mutants)
      ./www/setup.sh >/dev/null
      go run ./www/build
      go run ./wasm/fuzzcases -n 2000 >build/fuzzcases.jsonl
      DOONA_FIGURES="$figures" PATH="$(node22)/bin:$PATH" go test -tags long -timeout 60m -run Mutants -v ./internal/testing/house ;;
    crash)
      DOONA_FULL=1 go test -timeout 60m -run CrashSpendsOnce -v ./relay
      DOONA_FULL=1 go test -timeout 30m -run KilledServe -v ./cmd/verifier
      DOONA_FULL=1 DOONA_FIGURES="$figures" go test -timeout 60m -run Crash -v ./relay/internal/crashtest
      ;;
    setback)
      local of_store of_lives
      of_store=$(mktemp) of_lives=$(mktemp)
      DOONA_FULL=1 DOONA_FIGURES="$of_store" go test -timeout 120m -run 'SetBack|Uncut|Unmarked' -v ./relay/internal/store
      DOONA_FULL=1 DOONA_FIGURES="$of_lives" go test -timeout 60m -run SetBack -v ./relay
      DOONA_FULL=1 go test -timeout 60m -run SetBack -v ./issuer
      printf '{"store": %s, "lives": %s}' "$(cat "$of_store")" "$(cat "$of_lives")" >"$figures"
      rm "$of_store" "$of_lives"
      ;;
    world)
      DOONA_FULL=1 go test -timeout 60m -run ClockJumps -v ./relay ./issuer ./verifier
      DOONA_FULL=1 go test -timeout 60m -run World -skip 'TestWorld$' -v ./relay
      local shard job failed=
      mkdir -p build && rm -f build/world-*.json
      for shard in 0369 147 258; do # Side by side: each world is mostly its disks' time.
        DOONA_FULL=1 DOONA_FIGURES="$PWD/build/world-$shard.json" go test -timeout 180m -v \
          -run "TestWorld\$/seed=[0-9]*[$shard]\$" ./relay &
      done
      for job in $(jobs -p); do wait "$job" || failed=1; done
      [ -z "$failed" ]
      printf '[%s]' "$(paste -sd, <(for shard in 0369 147 258; do tr -d '\n' <"build/world-$shard.json"; echo; done))" >"$figures"
      ;;
    streams)
      local accounts
      accounts=$(mktemp)
      DOONA_FULL=1 DOONA_ACCOUNTS="$accounts" ./www/test.sh --test-name-pattern '400 days'
      printf '[%s]' "$(paste -sd, "$accounts")" >"$figures"
      rm "$accounts"
      DOONA_FULL=1 go test -timeout 30m -run 'ADailyVisitor' -v ./shufflerclient
      ;;
    beam) (cd beam && DOONA_FULL=1 go test -timeout 30m -v .) ;;
    fuzz) # docs/results/fuzz.tsv keeps a row of each: what has run since its package changed need not run again.
      local ts
      ts=$(mktemp)
      ./scripts/fuzz-ts.sh "${FUZZSECONDS:-600}" >"$ts"
      LANES=2 FUZZ_ARGS="-parallel 1" ROWS="$PWD/docs/results/fuzz.tsv" ./scripts/fuzz.sh "${FUZZTIME:-10m}"
      awk -F '\t' '{ row[$1] = $0 } END { for (name in row) print row[name] }' docs/results/fuzz.tsv "$ts" | sort |
        awk -F '\t' 'BEGIN { printf "[" } {
          printf "%s{\"fuzzer\": \"%s\", \"commit\": \"%s\", \"seconds\": %d, \"execs\": %d, \"new\": %d}",
            (NR > 1 ? ", " : ""), $1, $2, $3, $4, $5
        } END { print "]" }' >"$figures"
      rm "$ts"
      ;;
    tls) DOONA_FULL=1 go test -timeout 10m -run 'TLS|Autocert' ./relay ;;
    load) DOONA_FULL=1 DOONA_FIGURES="$figures" go test -timeout 60m -run TestLoad -v ./relay ;;
    size)
      go test -timeout 30m -run TestUniform -v ./relay/internal/spill
      DOONA_FULL=1 go test -timeout 30m -run TestWritten -v ./relay/internal/store
      local full sizes many
      full=$(mktemp) sizes=$(mktemp) many=$(mktemp)
      DOONA_FULL=1 DOONA_FIGURES="$full" go test -timeout 60m -parallel 3 -run 'TestFull$' -v ./relay/internal/crashtest
      DOONA_FULL=1 DOONA_SIZE=10000000 DOONA_FIGURES="$sizes" go test -timeout 180m -run TestSize -v ./relay
      DOONA_FULL=1 DOONA_FIGURES="$many" go test -timeout 60m -run TestManyTasks -v ./relay
      printf '{"full": %s, "batches": %s, "tasks": %s}' "$(cat "$full")" "$(cat "$sizes")" "$(cat "$many")" >"$figures"
      rm "$full" "$sizes" "$many"
      ;;
    scale) DOONA_FULL=1 DOONA_FIGURES="$figures" go test -timeout 120m -run TestScale -v ./bench ;;
    bench) # Fails where a committed ratio has fallen by over 10 % in three runs; BENCH_ROWS narrows it to some.
      go run ./bench --json --alarm docs/benchmarks.json --rows "${BENCH_ROWS:-}" | tail -1 >"$figures" ;;
    edge)
      ./www/setup.sh >/dev/null
      DOONA_FULL=1 go test -tags workerd -timeout 60m -run Instances -v ./wasm/edge
      ./scripts/edge-wrangler.sh
      DOONA_FULL=1 go test -timeout 10m -v -run 'AfterALongStop|FewReportsAreDestroyed' ./cmd/doona
      DOONA_FULL=1 ./www/test.sh --test-name-pattern 'from an empty project' ;;
    engines)
      local ran
      ran=$(mktemp)
      DOONA_ENGINES="$ran" ./www/test.sh engines
      printf '[%s]' "$(paste -sd, "$ran")" >"$figures"
      rm "$ran"
      DOONA_FULL=1 ./www/test.sh --test-name-pattern 'a click at any moment|in pictures|a stop at any|one instance reports' ;;
    strings) # ROWS=FILE keeps what the search came to, setting by setting, and goes on where a run was stopped.
      local found costs road job failed=
      found=${ROWS:-$(mktemp)} costs=$(mktemp) road=$(mktemp)
      CHROMIUM="$(./www/setup.sh)" && export CHROMIUM
      go run ./www/build
      DOONA_FULL=1 DOONA_FIGURES="$costs" go test -timeout 60m -run '(FindCost|FoundDownTo)$' -v ./protocols/strings &
      DOONA_FULL=1 DOONA_FIGURES="$found" go test -timeout 180m -run 'Find$' -v ./protocols/strings &
      DOONA_FULL=1 DOONA_FIGURES="$road" go test -timeout 60m -run TextsOverTheRoad -v ./cmd/demo &
      for job in $(jobs -p); do wait "$job" || failed=1; done
      [ -z "$failed" ]
      printf '{"settings": %s, "costs": %s, "road": %s}' "$(cat "$found")" "$(cat "$costs")" "$(cat "$road")" >"$figures"
      rm "$found" "$costs" "$road"
      ;;
    figures) DOONA_FULL=1 go -C lab test -timeout 60m -v ./figures ;;
    release) ./scripts/release-twice.sh >"$figures" ;;
    *) echo "unknown PART $1: want one of $parts, or all" >&2; exit 2 ;;
  esac
}

# current says whether a part passed on a commit since which nothing has changed of what it tests.
current() { DOONA_FULL=1 go test -count=1 -run "ResultsAreCurrent/^$1\$" ./internal/testing/house >/dev/null; }

{ # Read to its end before it runs: someone may write a new form of this file meanwhile.
if [ "${1:-all}" = all ]; then
  failed=
  for part in $parts; do
    if current "$part"; then
      printf '\n== %s: has passed since its last change\n' "$part"
    else
      "$0" "$part" || failed+=" $part"
    fi
  done
  [ -z "$failed" ] || { printf '\nfailed:%s\n' "$failed"; exit 1; }
  exit
fi

part=$1
commit=$(git rev-parse --short=7 HEAD)
[ -z "$(git status --porcelain -- . ':!docs/results' ':!docs/results.md' ':!docs/audit.md')" ] || commit+=-dirty
printf '\n== %s on %s\n' "$part" "$commit"
begin=$(date +%s)
figures=$(mktemp)
echo null >"$figures"
run_part "$part"
printf '{"part": "%s", "commit": "%s", "passed": true, "seconds": %d, "figures": %s}\n' \
  "$part" "$commit" "$(($(date +%s) - begin))" "$(cat "$figures")" | tee "docs/results/$part.json"
rm "$figures"
go test -count=1 -run ResultsPage ./internal/testing/house -update >/dev/null
exit
}
