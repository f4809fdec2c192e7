package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/task"
)

// TestNumbers: the program refuses or answers tiny, huge and invalid numbers in time.
func TestNumbers(t *testing.T) {
	mean := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
	texts := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		calibrated, err := planner.Draft(planner.Query{Name: "texts", Query: task.Strings, Length: 2, Batch: 10,
			Honest: 1, Epsilon: 8, Delta: 1e-4})
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
	}})
	bundle := func(c *relaytest.Cascade) string { return filepath.Join(c.Dir, "task0.bundle") }
	of := func(c *relaytest.Cascade) string {
		return fmt.Sprint(" --task ", bundle(c), " --keys ", c.VerifierKeys("task0"))
	}
	cells := relaytest.New(t, relaytest.Options{Task: speedTable})
	const budget = " --total-epsilon 5 --total-delta 1e-4"
	clitest.Numbers(t, root(), clitest.Examples{
		Setup: "mkdir batches && echo a >list.txt && touch empty.state && cat >speed.yaml <<END\n" + speedDimensions + "END\n",
		Lines: []string{
			"verifier keygen --kind hpke --sign-key " + mean.VerifierSign() + " --epochs 1 --out t.keys",
			"verifier analyze" + of(mean) + budget + " ../given/batches",
			"verifier analyze" + of(mean) + " --shard 1/2 --out 1.state ../given/batches",
			"verifier merge --task " + bundle(mean) + budget + " --ledger ledger ../given/empty.state",
			"verifier ask" + of(texts) + budget + " ../given/list.txt ../given/batches",
			"verifier query" + of(cells) + budget + " --dimensions ../given/speed.yaml ../given/batches",
			"verifier serve" + of(mean) + budget + " --sign-key " + mean.VerifierSign() + " --data data" +
				" --interval 10s --listen 127.0.0.1:0 # until msg=serving",
		},
		Answers: "no batch|there is no ledger",
	})
}

// TestNumbersOfConfiguration: the same for the numbers of verifier.yaml.
func TestNumbersOfConfiguration(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10)})
	clitest.FileNumbers(t, clitest.Examples{
		Setup: fmt.Sprintf(`cat >verifier.yaml <<END
listen: 127.0.0.1:0
sign_key: %q
data: data
pull_interval: 10s
late: 1h
tasks:
  - file: %q
    hpke_keys: %q
    total_epsilon: 5
    total_delta: 1e-4
END`, c.VerifierSign(), filepath.Join(c.Dir, "task0.bundle"), c.VerifierKeys("task0")),
		Lines: []string{"verifier serve --config ../given/verifier.yaml # until msg=serving",
			"verifier check-config --config ../given/verifier.yaml"},
	}, "verifier.yaml", clitest.Keys(reflect.TypeFor[server.Config](), "yaml")...)
}
