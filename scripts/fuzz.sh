#!/usr/bin/env bash
# Runs every fuzzer of the repository for TIME each: fuzz.sh [TIME=10s|brief] [NAME-REGEXP]. brief, for CI, runs 2,000
# inputs each without instrumentation, whose cold build takes minutes.
#
# Prints a table: fuzzer, commit, seconds, executions, new interesting inputs, result. All run; the exit status is 1 if
# one failed. A failing input is stored in the package's testdata/fuzz: commit it with the fix.
#
# FUZZ_ARGS goes to go test. LANES=N runs N in parallel. ROWS=FILE collects the rows of fuzzers that passed. It skips
# those with a row, if their package and wire/codec have not changed since the row's commit.
set -uo pipefail
cd "$(dirname "$0")/.."
export time=${1:-10s} rows=${ROWS:-} work
pattern=${2:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

targets() { git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | grep -E "$pattern"; }
[ -n "$(targets)" ] || { echo "fuzz.sh: no fuzzer matches $pattern" >&2; exit 1; }

# run PACKAGE NAME runs one fuzzer.
run() {
  if [ "$time" != brief ]; then
    # shellcheck disable=SC2086
    go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 2000x ${FUZZ_ARGS:-} "./$1"
    return
  fi
  local binary=$work/${1//\//.}.test
  [ -x "$binary" ] || go test -c -o "$binary" "./$1" || return
  (cd "$1" && "$binary" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime 2000x -test.fuzzminimizetime 100x -test.fuzzcachedir "$work/cache")
}

# kept PACKAGE NAME succeeds if the fuzzer has passed since the last change of its package.
kept() {
  local commit
  commit=$(awk -v f="$1/$2" '$1 == f { print $2 }' "${rows:-/dev/null}" 2>/dev/null | tail -1)
  [ -n "$commit" ] && git diff --quiet "$commit" -- "$1" wire/codec 2>/dev/null
}

# fuzz FILE:DECLARATION runs one fuzzer and prints its row.
fuzz() {
  local name=${1#*:func } package begin=$SECONDS log status=0 result=passed commit
  package=$(dirname "${1%%:*}")
  kept "$package" "$name" && return
  commit=$(git rev-parse --short=7 HEAD)
  log=$work/$name.log
  run "$package" "$name" >"$log" 2>&1 || status=$?
  # At the end of the time, Go may report a failure that is none (go.dev/issue/75804). It is real only if the fuzzer
  # wrote a failing input.
  if [ $status -ne 0 ] && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then status=0; fi
  if [ $status -ne 0 ]; then result=FAILED; cat "$log" >&2; touch "$work/failed"; fi
  printf '%s/%s\t%s\t%d\t%s\t%s\t%s\n' "$package" "$name" "$commit" $((SECONDS - begin)) \
    "$(grep -oE 'execs: [0-9]+' "$log" | tail -1 | cut -d' ' -f2)" \
    "$(grep -oE 'new interesting: [0-9]+' "$log" | tail -1 | cut -d' ' -f3)" "$result" >"$work/$name.row"
  cat "$work/$name.row"
  [ -z "$rows" ] || [ $status -ne 0 ] || cat "$work/$name.row" >>"$rows"
}
export -f run kept fuzz

printf 'fuzzer\tcommit\tseconds\texecs\tnew\tresult\n'
targets | tr '\n' '\0' | xargs -0 -P "${LANES:-1}" -I{} bash -c 'fuzz "$1"' fuzz {}
[ ! -e "$work/failed" ]
