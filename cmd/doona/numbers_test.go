package main

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestNumbers: the program refuses or answers tiny, huge and invalid numbers in time.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DIR", dir)
	for _, party := range []string{"relay", "verifier"} {
		sign := filepath.Join(dir, party+".sign")
		key, err := keyfile.NewSign(sign)
		require.NoError(t, err)
		t.Setenv(party, taskfile.FormatKey(task.SignKey(key.Public().(ed25519.PublicKey))))
		makeEpochKeys(t, sign, 2, filepath.Join(dir, party+".keys"))
	}
	const key = "ed25519:TTxOS_eEGvRtmWv5W31BISEQJAaY_HE5TJodDBdPuok"
	const load = "doona load --owner " + key + " --task http://127.0.0.1:1/v1/tasks/" +
		"64dc8388cf00c57f27c959b552f6a1170b6e7ebc59e5adc5cc97c93ea71ceb29"
	signed := "doona task new --query count --batch 10 --owner-key ../given/owner.key --relay http://127.0.0.1:1," +
		os.Getenv("relay") + ",../given/relay.keys.pub --verifier " + os.Getenv("verifier") +
		",../given/verifier.keys.pub "
	clitest.Numbers(t, root(), clitest.Examples{
		Setup: `doona task new --query mean --batch 100 --epsilon 1 --delta 1e-6 --out mean.json
doona keygen --out owner.key
doona task new --query count --batch 10 --epsilon 1 --delta 1e-6 --epochs 2 --stream s \
  --allow relays.url,relays.signKey --owner-key owner.key --relay http://127.0.0.1:1,$relay,$DIR/relay.keys.pub \
  --verifier $verifier,$DIR/verifier.keys.pub --out stream.bundle
cp $DIR/*.keys.pub $DIR/verifier.sign .
mkdir tasks
cp stream.bundle tasks/may.bundle
printf '0.5\n0.25\n1\n' >three.csv
echo '{"users": 9, "days": 2, "total_epsilon": 9, "total_delta": 1e-5, "queries": [{"name": "a", "query": "count"}]}' >set.json
doona set new set.json --owner-key owner.key --relay http://127.0.0.1:1,$relay,$DIR/relay.keys.pub \
  --verifier $verifier,$DIR/verifier.keys.pub --days 2 --out site`,
		Lines: []string{
			"doona gamma --k 4 --users 1000 --epsilon 1 --delta 1e-6",
			"doona gamma --k 2 --users 1000 --epsilon 1 --delta 1e-6 --rule others",
			"doona gamma --k 4 --users 1000 --epsilon 1 --delta 1e-6 --rule theorem1",
			"doona amplify --mechanism krr --bound exact --k 4 --eps0 4 --users 1000 --delta 1e-6 --epochs 3",
			"doona amplify --mechanism generic --bound bennett --eps0 1 --users 1000 --delta 1e-6",
			"doona amplify --mechanism generic --bound clones --eps0 1 --users 1000 --delta 1e-6",
			"doona amplify --mechanism laplace --bound exact --eps0 1 --epsilon .1 --delta 1e-6 --solve users",
			"doona amplify --mechanism laplace --bound exact --eps0 1 --epsilon .1 --users 1000 --solve delta",
			"doona amplify --mechanism krr --bound exact --k 4 --delta 1e-6 --epsilon .1 --users 1000 --solve eps0",
			"doona amplify --mechanism gaussian --sigma 1",
			"doona compose ../given/mean.json --epochs 3 --delta 1e-5",
			"doona dev --new --port 0 --batch 1 --epoch 3600 # until http://",
			"doona dev --new --port 0 --query histogram --bins 3 # until http://",
			"doona dev --new --port 0 --query mean --range 0,3 # until http://",
			"doona init try --epochs 2",
			load + " --clients 1",
			load + " --report http://127.0.0.1:1/tasks/1 --wait 1s",
			"doona plan --query count --users 20 --honest 1 --epsilon 1 --delta 1e-6 --devices 2 --hops 2",
			"doona plan --query count --users 20 --epsilon 1 --delta 1e-6 --noise relays --max-dummies 100 --batches 9",
			"doona plan --query mean --range 0,1 --users 20 --epsilon 1 --delta 1e-6 --noise clients --max-slots 40",
			"doona plan --query sum --users 20 --epsilon 1 --delta 1e-6 --noise clients --max-messages 40",
			"doona plan --query histogram --bins 3 --users 20 --epsilon 1 --delta 1e-6 --local-epsilon 9",
			"doona plan --query vector --dim 3 --users 20 --epsilon 1 --delta 1e-6",
			"doona plan --query vectormean --dim 3 --users 20 --epsilon 1 --delta 1e-6",
			"doona plan --query strings --length 2 --users 20 --epsilon 1 --delta 1e-6",
			"doona plan --query count --users 20 --total-epsilon 1 --total-delta 1e-6 --epochs 2 --noise relays --cap 2/3",
			"doona plan --query histogram --bins 3 --users 20 --total-epsilon 1 --total-delta 1e-6 --epochs 2 --noise relays " +
				"--events 1/2 --default 1",
			"doona plan --query count --epsilon 1 --delta 1e-6 --noise relays --solve users --interval-width 20",
			"doona plan --query count --users 20 --epsilon 1 --delta 1e-6 --pick 1 --out t.json",
			"doona simulate --task ../given/mean.json --fast --repeat 2 --malicious 1",
			"doona simulate --task ../given/mean.json --input ../given/three.csv --unchecked --sample 2",
			"doona task new --query count --batch 100 --epsilon 1 --delta 1e-6 --quota 1 --out t.json",
			"doona task new --query mean --range 0,1 --batch 100 --epsilon 1 --delta 1e-6 --honest 1 --out t.json",
			"doona task new --query histogram --bins 3 --batch 20 --epsilon 1 --delta 1e-6 --noise relays " +
				"--batches 9 --max-dummies 1e4 --local-epsilon 20 --out t.json",
			"doona task new --query vector --dim 3 --protocol vectorsum --param k=1 --lanes 1 --batch 20 --epsilon 1 " +
				"--delta 1e-6 --out t.json",
			"doona task new --query strings --length 2 --batch 20 --epsilon 1 --delta 1e-6 --noise relays --out t.json",
			signed + "--noise relays --total-epsilon 1 --total-delta 1e-6 --epochs 2 --cap 2/3 " +
				"--epoch-length 1h --out t.bundle",
			signed + "--noise relays --total-epsilon 1 --total-delta 1e-6 --epochs 2 --events 1/2 --default 1 " +
				"--epoch-length 1h --out t.bundle",
			"doona set new ../given/set.json --owner-key ../given/owner.key --relay http://127.0.0.1:1," + os.Getenv("relay") +
				",../given/relay.keys.pub --verifier " + os.Getenv("verifier") + ",../given/verifier.keys.pub --days 2 --quota 1 " +
				"--out site",
			"doona renew ../given/tasks --owner-key ../given/owner.key --verifier-keys . " +
				"--verifier-sign-key ../given/verifier.sign --within 504h",
			"doona set renew ../given/site --owner-key ../given/owner.key --verifier " + os.Getenv("verifier") +
				",../given/verifier.keys.pub --days 2 --quota 1",
			fmt.Sprintf("doona task renew ../given/stream.bundle --owner-key ../given/owner.key --verifier-keys "+
				"../given/verifier.keys.pub --epochs 2 --replace 1=http://127.0.0.1:1,%s --out t.bundle", key),
		},
		Answers: "no (protocol|number of users) reaches this goal|connection refused|another process uses it",
		Work:    []string{"repeat", "duration", "wait"},
		// protocols/correlated, realsum and strings search long (issue 45).
		Slow: "--query (mean|sum|vector|strings) ",
	})
}

// TestNumbersOfFiles: the same for the numbers of a task and of a set.
func TestNumbersOfFiles(t *testing.T) {
	clitest.FileNumbers(t, clitest.Examples{
		Setup:   "doona task new --query mean --range -1,3 --batch 100 --epsilon 1 --delta 1e-6 --out mean.json",
		Lines:   []string{"doona task check ../given/mean.json", "doona simulate --task ../given/mean.json --fast"},
		Answers: `invalid batch\.min`, // follows from a small size
	}, "mean.json")
	clitest.FileNumbers(t, clitest.Examples{
		Setup: `cat >set.json <<END
{"users": 200, "epochs": 1, "total_epsilon": 3, "total_delta": 1e-5, "honest": 1, "hops": 2, "queries": [
 {"name": "a", "query": "count", "weight": 2, "noise": "relays", "max_dummies": 1e4, "local_epsilon": 0},
 {"name": "b", "query": "histogram", "bins": 3, "noise": "relays", "max_slots": 0, "max_messages": 0}]}
END`,
		Lines:   []string{"doona plan --set ../given/set.json"},
		Answers: "with its part of the total",
	}, "set.json")
}
