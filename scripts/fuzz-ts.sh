#!/usr/bin/env bash
# Compares the TypeScript parsers with Go's on damaged tasks and bundles, for the given number of seconds (default 10).
# Prints a row like those of fuzz.sh. If the parsers disagree, the cases stay in build/fuzz-ts.
set -euo pipefail
cd "$(dirname "$0")/.."
work=build/fuzz-ts
mkdir -p $work
go run ./www/build >&2
go run ./www/build -specs build/specs
go build -o $work/fuzzcases ./wasm/fuzzcases
begin=$SECONDS cases=0 commit=$(git rev-parse --short=7 HEAD)
while [ $((SECONDS - begin)) -lt "${1:-10}" ]; do
  $work/fuzzcases -n 20000 -seed $RANDOM$RANDOM >$work/cases.jsonl
  if ! (cd www && DOONA_FUZZ_CASES=../$work/cases.jsonl node --test ../build/specs/fuzz.spec.mjs) >$work/log 2>&1; then
    cat $work/log >&2
    printf 'www/sdk/fuzz.spec.ts\t%s\t%d\t%d\t\tFAILED\n' "$commit" $((SECONDS - begin)) $cases
    exit 1
  fi
  cases=$((cases + 20000))
done
printf 'www/sdk/fuzz.spec.ts\t%s\t%d\t%d\t\tpassed\n' "$commit" $((SECONDS - begin)) $cases
