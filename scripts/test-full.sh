#!/usr/bin/env bash
# Runs the long tests for a release: one part, or all parts that have not yet run in this clone. You can stop it; the
# next run continues with the remaining parts. Each part leaves its commit, its seconds and its measurements in
# build/results. When all parts have run, the script writes docs/results.json and docs/results.md.
set -euo pipefail
cd "$(dirname "$0")/.."
parts="accountant protocols coverage audit order mutants crash rollback world streams fuzz tls operators load size scale bench edge engines tools strings beam figures release"
results=$PWD/build/results
mkdir -p "$results"
export GOFLAGS="${GOFLAGS:-} -count=1" # run tests whose results Go has cached

# Prints the folder of Node 22, one of the locked packages.
node22() { echo "$PWD/www/node_modules/node-linux-$(node -p process.arch)"; }

run_part() {
  case "$1" in
    accountant) go test -tags long,postgres -timeout 60m ./accountant/... ;;
    protocols)
      go test -tags long,postgres -timeout 60m ./randomizer/... ./protocols/...
      go test -tags long,postgres -timeout 120m -v ./wasm -run \
        'NoiseDistribution|Soak|DamagedTasks|UnreachedData|Planted|EveryStep|DownloadedToolchain|BudgetsAreSmall'
      ./www/test.sh chromium --long --test-name-pattern 'stops at any function|one instance makes many' ;;
    coverage)
      go test -tags long,postgres -timeout 60m -v -run 'QuantilesAndMean|ProcessedIsPossible|BandsOverEpochs' ./verifier
      go test -tags long,postgres -timeout 60m -v -run 'EveryFaultIsNamed|ServeNames|VerifyNames|ShardsGive' ./verifier
      go test -timeout 30m -v -run 'OneTaskThenTwoThenOne' ./verifier/server
      go test -tags long,postgres -timeout 30m -v -run 'KilledServe|KilledAnalyze|FaultsAreNamed' ./cmd/verifier
      go test -timeout 30m -v -run 'FastPath|FastLocal' ./planner ./protocols/vectormean
      go test -tags long,postgres -timeout 60m -v -run 'RelaysNoiseIsAsPromised|CorrelatedIsUsable|PlansPredict|Bands' ./planner
      go test -tags long,postgres -timeout 300m -v -run 'LimitsWorsenNothing' ./planner
      go test -tags long,postgres -timeout 180m -v -run 'TestNumbers' ./cmd/...
      DOONA_FIGURES="$figures" go test -tags long,postgres -timeout 180m -run IntervalsCover -v ./planner ;;
    audit)
      go -C lab run . audit --out ../docs/audit.md --json | tail -1 >"$figures"
      go test -tags long,postgres -timeout 60m -v -run 'SurroundedClient|ReplayedSlot|LessNoiseIsFound|BatchesPerEpoch' ./relay ./relay/internal/adversary ;;
    order) go test -tags long,postgres -timeout 60m -run ProcessesPermute -v ./relay ;;
    mutants)
      ./www/setup.sh >/dev/null
      go run ./www/build
      go run ./wasm/fuzzcases -n 2000 >build/fuzzcases.jsonl
      DOONA_FIGURES="$figures" PATH="$(node22)/bin:$PATH" go test -tags long,postgres -timeout 60m -run Mutants -v ./internal/testing/house ;;
    crash)
      go test -tags long,postgres -timeout 60m -run CrashSpendsOnce -v ./relay
      go test -tags long,postgres -timeout 30m -run KilledServe -v ./cmd/verifier
      DOONA_FIGURES="$figures" go test -tags long,postgres -timeout 60m -run Crash -v ./relay/internal/crashtest
      ;;
    rollback)
      local of_store of_lives
      of_store=$(mktemp) of_lives=$(mktemp)
      DOONA_FIGURES="$of_store" go test -tags long,postgres -timeout 120m -run 'StateRollback|Uncut|Unmarked' -v ./relay/internal/store
      DOONA_FIGURES="$of_lives" go test -tags long,postgres -timeout 60m -run StateRollback -v ./relay ./relay/internal/adversary
      go test -tags long,postgres -timeout 60m -run StateRollback -v ./issuer
      printf '{"store": %s, "lives": %s}' "$(cat "$of_store")" "$(cat "$of_lives")" >"$figures"
      rm "$of_store" "$of_lives"
      ;;
    world)
      go test -tags long,postgres -timeout 60m -run ClockJumps -v ./relay ./issuer ./verifier/collect
      go test -tags long,postgres -timeout 60m -run World -skip 'TestWorld$' -v ./relay/internal/world
      local shard job failed=
      mkdir -p build && rm -f build/world-*.json
      for shard in 0369 147 258; do # in parallel, as each run mostly waits for its disks
        DOONA_FIGURES="$PWD/build/world-$shard.json" go test -tags long,postgres -timeout 180m -v \
          -run "TestWorld\$/seed=[0-9]*[$shard]\$" ./relay/internal/world &
      done
      for job in $(jobs -p); do wait "$job" || failed=1; done
      [ -z "$failed" ]
      printf '[%s]' "$(paste -sd, <(for shard in 0369 147 258; do tr -d '\n' <"build/world-$shard.json"; echo; done))" >"$figures"
      ;;
    streams)
      local accounts
      accounts=$(mktemp)
      local engine
      for engine in chromium workerd firefox; do
        DOONA_ACCOUNTS="$accounts" ./www/test.sh "$engine" --long --test-name-pattern '400 days'
      done
      printf '[%s]' "$(paste -sd, "$accounts")" >"$figures"
      rm "$accounts"
      go test -tags long,postgres -timeout 30m -run 'ADailyVisitor' -v ./shufflerclient
      ;;
    beam) (cd beam && go test -tags long,postgres -timeout 30m -v .) ;;
    fuzz) # fuzz.tsv keeps a row per fuzzer. A fuzzer runs again only if its package changed since its row.
      local ts
      ts=$(mktemp)
      ./scripts/fuzz-ts.sh "${FUZZSECONDS:-600}" >"$ts"
      LANES=2 FUZZ_ARGS="-parallel 1" ROWS="$results/fuzz.tsv" ./scripts/fuzz.sh "${FUZZTIME:-10m}"
      awk -F '\t' '{ row[$1] = $0 } END { for (name in row) print row[name] }' "$results/fuzz.tsv" "$ts" | sort |
        awk -F '\t' 'BEGIN { printf "[" } {
          printf "%s{\"fuzzer\": \"%s\", \"commit\": \"%s\", \"seconds\": %d, \"execs\": %d, \"new\": %d}",
            (NR > 1 ? ", " : ""), $1, $2, $3, $4, $5
        } END { print "]" }' >"$figures"
      rm "$ts"
      ;;
    tls) go test -tags long,postgres -timeout 10m -run 'TLS|Autocert' ./relay ;;
    operators) # installs the proxies, pooler and tools; no test may be skipped
      ./scripts/operators.sh
      mkdir -p build
      go test -tags long,postgres -timeout 60m -v -run 'Operators|PgBouncer|DatabaseChecks|Signals|OpenedToTheGroup' \
        ./relay | tee build/operators.log
      go test -tags long,postgres -timeout 20m -v -run Switchover ./relay/internal/store | tee -a build/operators.log
      go test -timeout 20m -v -run 'Restored|Monitoring' ./verifier/server | tee -a build/operators.log
      go test -timeout 20m -v -run 'Promtool|Proxy|Containers|Compose' ./deploy | tee -a build/operators.log
      ! grep -e '--- SKIP' build/operators.log ;;
    load) DOONA_FIGURES="$figures" go test -tags long,postgres -timeout 60m -run TestLoad -v ./relay ;;
    size)
      go test -timeout 30m -run TestUniform -v ./relay/internal/spill
      go test -tags long,postgres -timeout 30m -run TestWritten -v ./relay/internal/store
      local full sizes many sites
      full=$(mktemp) sizes=$(mktemp) many=$(mktemp) sites=$(mktemp)
      DOONA_FIGURES="$full" go test -tags long,postgres -timeout 60m -parallel 3 -run 'TestFull$' -v ./relay/internal/crashtest
      DOONA_SIZE=10000000 DOONA_FIGURES="$sizes" go test -tags long,postgres -timeout 180m -run TestSize -v ./relay
      DOONA_FIGURES="$many" go test -tags long,postgres -timeout 60m -run TestManyTasks -v ./relay
      DOONA_FIGURES="$sites" go test -tags long,postgres -timeout 60m -run TestManySites -v ./relay
      DOONA_SITES=1000 go test -tags long,postgres -timeout 60m -run TestManySites -v ./relay
      for number in 1 100; do
        DOONA_SITES=$number go test -tags long,postgres -timeout 60m -run TestSiteCosts -v ./relay
      done
      printf '{"full": %s, "batches": %s, "tasks": %s, "sites": %s}' "$(cat "$full")" "$(cat "$sizes")" \
        "$(cat "$many")" "$(cat "$sites")" >"$figures"
      rm "$full" "$sizes" "$many" "$sites"
      ;;
    scale) DOONA_FIGURES="$figures" go test -tags long,postgres -timeout 120m -run TestScale -v ./bench ;;
    bench) # fails if a committed ratio fell by more than 10 % in three runs; BENCH_ROWS selects rows
      go run ./bench --json --alarm docs/benchmarks.json --rows "${BENCH_ROWS:-}" | tail -1 >"$figures" ;;
    edge)
      ./www/setup.sh >/dev/null
      go test -tags workerd,long -timeout 60m -run Instances -v ./wasm/edge
      ./scripts/edge-wrangler.sh
      go test -tags long,postgres -timeout 10m -v -run 'AfterALongStop|FewReportsAreDestroyed' ./cmd/doona
      ./www/test.sh chromium --long --test-name-pattern 'from an empty project' ;;
    engines)
      local ran
      ran=$(mktemp)
      DOONA_ENGINES="$ran" ./www/test.sh engines
      printf '[%s]' "$(paste -sd, "$ran")" >"$figures"
      rm "$ran"
      ./www/test.sh chromium --long --test-name-pattern 'a click at any moment|in pictures|stops at any function|one instance makes many' ;;
    tools) # npm brings the bundlers, test runners and package managers; DOONA_TOOLS_FOLDER keeps them
      local tried
      tried=$(mktemp)
      DOONA_TOOLS="$tried" ./www/test.sh tools
      printf '[%s]' "$(paste -sd, "$tried")" >"$figures"
      rm "$tried"
      ;;
    strings) # ROWS=FILE keeps the result of each setting, so that a stopped run can continue
      local found costs relays texts job failed=
      found=${ROWS:-$(mktemp)} costs=$(mktemp) relays=$(mktemp) texts=$(mktemp)
      CHROMIUM="$(./www/setup.sh)" && export CHROMIUM
      go run ./www/build
      DOONA_FIGURES="$costs" go test -tags long,postgres -timeout 60m -run '(FindCost|FoundDownTo)$' -v ./protocols/strings &
      DOONA_FIGURES="$found" go test -tags long,postgres -timeout 180m -run 'Find$' -v ./protocols/strings &
      DOONA_FIGURES="$texts" go test -tags long,postgres -timeout 180m -run 'TextIntervals|LawIsTheCode' -v \
        ./protocols/strings &
      DOONA_FIGURES="$relays" go test -tags long,postgres -timeout 60m -run TextsThroughRelays -v ./cmd/demo &
      for job in $(jobs -p); do wait "$job" || failed=1; done
      [ -z "$failed" ]
      printf '{"settings": %s, "costs": %s, "relays": %s, "intervals": %s}' "$(cat "$found")" "$(cat "$costs")" \
        "$(cat "$relays")" "$(cat "$texts")" >"$figures"
      rm "$found" "$costs" "$relays" "$texts"
      ;;
    figures) go -C lab test -tags long -timeout 60m -v ./figures ;;
    release) ./scripts/release-twice.sh >"$figures" ;;
    *) echo "unknown PART $1: want one of $parts, or all" >&2; exit 2 ;;
  esac
}

{ # Read to its end before it runs, so that an edit meanwhile does no harm.
if [ "${1:-all}" = all ]; then
  failed=
  for part in $parts; do
    [ -e "$results/$part.json" ] || "$0" "$part" || failed+=" $part"
  done
  [ -z "$failed" ] || { printf '\nfailed:%s\n' "$failed"; exit 1; }
  printf '[%s]\n' "$(for part in $parts; do cat "$results/$part.json"; done | paste -sd,)" >docs/results.json
  go test -run ResultsPage ./internal/testing/house -update >/dev/null
  exit
fi

part=$1
commit=$(git rev-parse --short=7 HEAD)
[ -z "$(git status --porcelain -- . ':!docs/audit.md')" ] || commit+=-dirty
printf '\n== %s on %s\n' "$part" "$commit"
begin=$(date +%s)
figures=$(mktemp)
echo null >"$figures"
run_part "$part"
tr -d '\n' <"$figures" >"$figures.line"
printf '{"part": "%s", "commit": "%s", "passed": true, "seconds": %d, "figures": %s}\n' \
  "$part" "$commit" "$(($(date +%s) - begin))" "$(cat "$figures.line")" | tee "$results/$part.json"
rm "$figures" "$figures.line"
exit
}
