#!/usr/bin/env bash
# Runs the built commands the way a person would and checks what they print and how they exit.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/" ./cmd/verifier ./cmd/relay ./cmd/issuer ./cmd/demo
passed=0

# check NAME JSON EXPRESSION demands that a JavaScript expression over the object d holds.
check() {
  if ! node -e 'const d = JSON.parse(require("fs").readFileSync(0)); process.exit(eval(process.argv[1]) ? 0 : 1)' "$3" <<<"$2"; then
    printf 'FAIL %s: %s does not hold of\n%.4000s\n' "$1" "$3" "$2"
    exit 1
  fi
  passed=$((passed + 1))
  echo "ok   $1"
}
# exits STATUS TEXT COMMAND... demands an exit status and words on standard error.
exits() {
  local status=0 want=$1 text=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" || status=$?
  if [ "$status" != "$want" ] || ! grep -qiF -- "$text" "$work/err"; then
    printf 'FAIL %s\nexit %s, want %s and "%s" in:\n' "$*" "$status" "$want" "$text"
    cat "$work/err"
    exit 1
  fi
  passed=$((passed + 1))
  echo "ok   exit $want: ${*##*/}"
}
v="$work/verifier"

gamma=$("$v" gamma --k 4 --users 10000 --epsilon .5 --delta 1e-6 --rule revealed --json | tail -1)
check "gamma, revealed, n=1e4" "$gamma" 'd.gamma.toPrecision(3) === "0.0541"'
gamma=$("$v" gamma --k 4 --users 10000 --epsilon .5 --delta 1e-6 --rule theorem1 --json | tail -1)
check "gamma, theorem1, n=1e4" "$gamma" 'd.gamma.toPrecision(3) === "0.325"'
gamma=$("$v" gamma --k 10 --users 1000000 --epsilon 1 --delta 1e-8 --rule revealed --json | tail -1)
check "gamma, revealed, n=1e6" "$gamma" 'd.gamma.toPrecision(3) === "0.000621"'

"$v" task new --query mean --range 0,180 --batch 1000 --epsilon 1 --delta 1e-6 --out "$work/mean.json" >/dev/null
"$v" task check "$work/mean.json" >/dev/null
sim=$("$v" simulate --task "$work/mean.json" --input worst --repeat 2000 --json | tail -1)
check "simulate: bias" "$sim" 'Math.abs(d.bias) < 5.7 * d.bias_standard_error'
check "simulate: variance" "$sim" 'Math.abs(d.empirical_variance / d.predicted_variance - 1) < 0.18'

printf 'x\n' >"$work/header.csv"
: >"$work/empty.csv"
printf 'x\n1\nNaN\n' >"$work/nan.csv"
exits 1 "no rows" "$v" simulate --task "$work/mean.json" --input "$work/header.csv"
exits 1 "empty" "$v" simulate --task "$work/mean.json" --input "$work/empty.csv"
exits 1 "line 3" "$v" simulate --task "$work/mean.json" --input "$work/nan.csv"
exits 1 "no column" "$v" simulate --task "$work/mean.json" --input "$work/nan.csv" --column speed
exits 2 "epsilon" "$v" task new --query mean --batch 10 --epsilon 0 --delta 1e-6 --out "$work/bad"
exits 2 "delta" "$v" task new --query mean --batch 10 --epsilon 1 --delta 1 --out "$work/bad"
exits 2 "users" "$v" task new --query histogram --bins 4 --batch 100 --epsilon .5 --delta 1e-6 --rule theorem1 --out "$work/bad"
exits 2 "quota" "$v" task new --query mean --batch 1000 --epsilon 1 --delta 1e-6 --quota 0 --out "$work/bad"
exits 2 "epochs" "$v" task new --query mean --batch 1000 --epsilon 1 --delta 1e-6 --epochs 0 --out "$work/bad"
exits 2 "--relay" "$v" task new --query mean --batch 1000 --epsilon 1 --delta 1e-6 --owner-key k --out "$work/bad"
exits 2 "--task" "$v" simulate
exits 2 "unknown flag" "$v" gamma --nonsense
exits 2 "unknown command" "$v" nonsense
exits 2 "unknown command" "$v" task nonsense
exits 2 "attack" "$v" simulate --task "$work/mean.json" --attack nonsense
exits 1 "couldn't read the task" "$v" simulate --task "$work/nowhere.json"

"$v" init "$work/first" --epochs 2 --json >"$work/init.json"
"$v" task check "$work/first/task.bundle" >/dev/null
exits 1 "not empty" "$v" init "$work/first"
exits 1 "not the key of the task's verifier" "$v" serve --task "$work/first/task.bundle" \
  --keys "$work/first/verifier/task.keys" --sign-key "$work/first/owner.key" --data "$work/batches"
exits 2 "one for each of 2 tasks" "$v" serve --task "$work/first/task.bundle" --task "$work/first/task.bundle" \
  --keys "$work/first/verifier/task.keys" --sign-key "$work/first/verifier/sign.key" --data "$work/batches"
"$work/relay" check-config --config "$work/first/relay1/relay.yaml" >/dev/null

# A task with tokens, each party's keys made as its operator would.
i="$work/issuer"
for party in one verifier issuer owner; do "$work/relay" keygen --kind sign --out "$work/$party.sign" --json >"$work/$party.json"; done
for party in one verifier; do "$work/relay" keygen --kind hpke --sign-key "$work/$party.sign" --epochs 2 --out "$work/$party.keys" >/dev/null; done
"$i" keygen --sign-key "$work/issuer.sign" --epochs 2 --out "$work/token.keys" >/dev/null
public() { node -p 'JSON.parse(require("fs").readFileSync(0)).public' <"$work/$1.json"; }
tokens=(task new --query mean --batch 1000 --epsilon 1 --delta 1e-6 --epochs 2 --owner-key "$work/owner.sign"
  --relay "http://127.0.0.1:8091,$(public one),$work/one.keys.pub" --verifier "$(public verifier),$work/verifier.keys.pub")
"$v" "${tokens[@]}" --issuer "http://127.0.0.1:8095,$(public issuer),$work/token.keys.pub" --out "$work/tokens.bundle" >"$work/out"
grep -q "must be independent of owner and verifier" "$work/out"
"$v" task check "$work/tokens.bundle" >"$work/out"
grep -q "signed by $(public owner)" "$work/out"
"$v" task check "$work/tokens.bundle.json" >"$work/out"
grep -q "signature and key lists are not checked" "$work/out"
exits 1 "invalid clients.issuer" "$v" "${tokens[@]}" --issuer "http://127.0.0.1:8095,$(public owner),$work/token.keys.pub" --out "$work/bad"
exits 2 "quota" "$v" "${tokens[@]}" --quota 2 --issuer "http://127.0.0.1:8095,$(public issuer),$work/token.keys.pub" --out "$work/bad"
for party in one verifier; do "$work/relay" keygen --kind hpke --kem mlkem768 --sign-key "$work/$party.sign" --epochs 2 --out "$work/$party.pq" >/dev/null; done
quantum=(task new --query mean --batch 1000 --epsilon 1 --delta 1e-6 --epochs 2 --owner-key "$work/owner.sign"
  --relay "http://127.0.0.1:8091,$(public one),$work/one.pq.pub" --verifier "$(public verifier),$work/verifier.pq.pub")
"$v" "${quantum[@]}" --kem mlkem768 --out "$work/quantum.bundle" >/dev/null
exits 1 'of kem "mlkem768"' "$v" "${quantum[@]}" --out "$work/bad"
exits 2 "mlkem768x25519" "$v" "${quantum[@]}" --kem rsa --out "$work/bad"
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/api.keys")
cat >"$work/issuer.yaml" <<YAML
listen: 127.0.0.1:8095
store: sqlite:issuer.db
clients: account
api_keys: api.keys
tasks: [{file: tokens.bundle, owner: "$(public owner)", token_keys: token.keys, quota: 2}]
YAML
"$i" check-config --config "$work/issuer.yaml" >/dev/null
status=$("$i" status --config "$work/issuer.yaml" --json | tail -1)
[ ! -e "$work/issuer.db" ]
check "issuer: status" "$status" 'd.tasks[0].quota === 2 && d.tasks[0].epochs.length === 2 && d.tasks[0].epochs.every((e) => e.issued === 0)'
exits 2 "--config" "$i" serve
exits 2 "epochs" "$i" keygen --sign-key "$work/issuer.sign" --epochs 0 --out "$work/bad"
exits 1 "file exists" "$i" keygen --sign-key "$work/issuer.sign" --epochs 1 --out "$work/token.keys"
sed -i 's/account/address/' "$work/issuer.yaml"
exits 1 "invalid api_keys" "$i" check-config --config "$work/issuer.yaml"

r="$work/relay"
exits 2 "--task" "$r" load
exits 2 "task" "$r" load --task here --owner x
exits 2 "rate" "$r" load --task http://127.0.0.1:1/v1/tasks/x --owner x --rate -1
exits 2 "clients" "$r" load --task http://127.0.0.1:1/v1/tasks/x --owner x --clients 0
exits 1 "owner" "$r" load --task http://127.0.0.1:1/v1/tasks/x --owner x

demo=$("$work/demo" --headless --json --users 2500 --batch 1000 | tail -1)
check "demo: estimate" "$demo" 'Math.abs(d.estimate - d.truth) <= 5 * d.standard_error'
check "demo: counts add up" "$demo" 'd.messages_sent - d.cover_messages === d.verified + d.rejected + d.withheld && d.verified === 2000 && d.withheld === 500'
demo=$("$work/demo" --headless --json --users 2000 --batch 2000 --query histogram --bins 4 --hops 3 | tail -1)
check "demo: histogram through three relays" "$demo" 'd.estimate.every((e, j) => Math.abs(e - d.truth[j]) <= 5 * d.standard_error[j])'
node -e 'for (let i = 0; i < 200; i++) console.log(Array.from({ length: 1000 }, (_, l) => ((i * 7 + l * 13) % 101) / 100).join())' >"$work/vectors.csv"
demo=$("$work/demo" --headless --json --query vector --input "$work/vectors.csv" --users 200 --batch 200 --honest 1 --epsilon 1 --delta 1e-6 | tail -1)
check "demo: sum of vectors, d = 1000, through two relays" "$demo" \
  'd.protocol === "vectorsum" && d.verified === 200 && d.estimate.length === 1000 && (r => r > 0.5 && r < 1.6)(d.estimate.reduce((s, e, j) => s + ((e - d.truth[j]) / d.standard_error[j]) ** 2, 0) / 1000)'
node -e 'for (let i = 0; i < 100; i++) console.log(Array.from({ length: 16 }, (_, l) => Math.sin(i + l * l) / 4).join())' >"$work/ball.csv"
demo=$("$work/demo" --headless --json --query vectormean --padding none --input "$work/ball.csv" --users 100 --batch 100 --honest 1 --epsilon 4 --delta 1e-6 | tail -1)
check "demo: mean of vectors, d = 16, padding none, through two relays" "$demo" \
  'd.protocol === "vectormean" && d.padding === "none" && d.messages_sent === d.verified && d.estimate.every((e, j) => Math.abs(e - d.truth[j]) <= 6 * d.standard_error[j])'
full=$("$v" task new --query vectormean --dim 16 --batch 100 --honest 1 --epsilon 4 --delta 1e-6 --padding none --out "$work/ball.json" --json | tail -1)
check "task new: slots under padding full beside those under none" "$full" 'd.slots_full > 0 && d.slots_full < d.slots'
exits 2 "params.t" "$v" task new --query vector --dim 4 --param t=5 --batch 1000 --epsilon 1 --delta 1e-6 --out "$work/bad"
exits 2 "(r+1)^dim" "$v" task new --query vectormean --protocol vectorgrid --dim 4 --param r=255 --batch 1000 --epsilon 1 --delta 1e-6 --out "$work/bad"
exits 2 "at least" "$v" task new --query vector --dim 100 --rule scm21 --batch 1000 --epsilon .9 --delta 1e-6 --out "$work/bad"
exits 2 "at least" "$v" task new --query vectormean --dim 1000 --batch 100 --epsilon 1 --delta 1e-6 --out "$work/bad"
exits 2 "10 to 86400" "$work/demo" --headless --epoch 5
exits 2 "batch" "$work/demo" --headless --users 100 --batch 101
exits 2 "at most 200000" "$work/demo" --headless --users 200001
exits 1 "no column" "$work/demo" --headless --column speed
printf 'CLI: %s passed, 0 failed\n' "$passed"
