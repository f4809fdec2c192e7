#!/usr/bin/env bash
# Runs every fuzzer of the repository, one after another, each for the given time: fuzz.sh
# [TIME=10s] [NAME-REGEXP]. Prints a table: fuzzer, seconds, executions, new interesting inputs,
# result. All are run; the exit status is 1 where one failed. FUZZ_ARGS goes to go test. An input
# that fails is left in the package's testdata/fuzz, to be committed with what mends it.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s} pattern=${2:-.}
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=$(git grep -ohE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | wc -l)
[ "$targets" -gt 0 ] || { echo "no fuzzers found" >&2; exit 1; }

printf 'fuzzer\tseconds\texecs\tnew\tresult\n'
while IFS=: read -r file declared; do
  name=${declared#func }
  [[ $name =~ $pattern ]] || continue
  begin=$SECONDS
  # shellcheck disable=SC2086
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 2000x ${FUZZ_ARGS:-} "./$(dirname "$file")" >"$log" 2>&1
  status=$?
  # Go 1.26 may report the end of the time itself as a failure (go.dev/issue/75804); one that left
  # an input behind, or said anything else, is real.
  if [ $status -ne 0 ] && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then status=0; fi
  result=passed
  if [ $status -ne 0 ]; then result=FAILED failed=1; cat "$log" >&2; fi
  printf '%s/%s\t%d\t%s\t%s\t%s\n' "$(dirname "$file")" "$name" $((SECONDS - begin)) \
    "$(grep -oE 'execs: [0-9]+' "$log" | tail -1 | cut -d' ' -f2)" \
    "$(grep -oE 'new interesting: [0-9]+' "$log" | tail -1 | cut -d' ' -f3)" "$result"
done < <(git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go')
exit $failed
