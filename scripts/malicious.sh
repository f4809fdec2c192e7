#!/usr/bin/env bash
# Prints how far one malicious client moves the sum of n = 1,000 vectors of norm at most 1 under vectormean, with one
# lane and with a lane per coefficient (the paper AFNNTZ24: about √d against O(1)).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/doona" ./cmd/doona
echo '| d | lanes | slots of a client in a lane | shift of the sum by one malicious client, norm | noise in that figure |'
echo '|---|---|---|---|---|'
for d in 16 64 256; do
  for lanes in 1 $((2 * d)); do
    "$work/doona" task new --query vectormean --protocol vectormean --dim "$d" --lanes "$lanes" --batch 1000 --honest 1 \
      --epsilon 4 --delta 1e-6 --out "$work/task" >"$work/out"
    "$work/doona" simulate --task "$work/task" --repeat "${REPEAT:-40}" --malicious 1 --attack one-coordinate --json 2>"$work/err" | tail -1 >"$work/run"
    node -e '
      const d = JSON.parse(require("fs").readFileSync(process.argv[1])), n = 1000;
      const sum = (a) => a.reduce((s, v) => s + v, 0);
      const noise = n * Math.sqrt(sum(d.predicted_variance) / d.repeats);
      const shift = n * Math.sqrt(sum(d.bias.map((b) => b * b)));
      console.log(`| ${process.argv[2]} | ${process.argv[3]} | ${d.slots} | ${shift.toFixed(1)} | ${noise.toFixed(1)} |`);
    ' "$work/run" "$d" "$lanes"
  done
done
