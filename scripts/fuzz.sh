#!/usr/bin/env bash
# Runs every fuzzer of the repository for the given time, default 10s each.
set -euo pipefail
cd "$(dirname "$0")/.."
git grep -lE '^func Fuzz' -- '*_test.go' | while read -r file; do
  for name in $(grep -oE '^func Fuzz[A-Za-z0-9]+' "$file" | cut -d' ' -f2); do
    echo "-- $name in $(dirname "$file")"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-10s}" "./$(dirname "$file")"
  done
done
