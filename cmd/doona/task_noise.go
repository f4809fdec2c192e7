package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/wire/task"
)

// noiseFlags are the flags of `doona task new` about who adds noise.
type noiseFlags struct {
	by     string
	relays planner.RelayNoise
}

// byRelays is the value of --noise that makes relays add the noise.
const byRelays = "relays"

// relayNoiseFlags are the flags that apply only if relays add noise.
var relayNoiseFlags = []string{"max-dummies", "local-epsilon", "batches"}

func (f *noiseFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.by, "noise", "", "clients, or relays: every relay adds dummies, and no other client need be "+
		"honest (default: the protocol's, or either)")
	r := &f.relays
	flags.Float64Var(&r.MaxDummies, "max-dummies", 0,
		"with --noise relays: the most dummies per relay and batch on average; 0 for no bound")
	flags.Float64Var(&r.LocalEpsilon, "local-epsilon", 0,
		"with --noise relays: ε₀ that remains if all relays collude, in (0, 64]; 0: nothing remains")
	flags.Uint64Var(&r.Batches, "batches", defaultBatches,
		"with --noise relays: the most batches of an epoch, 0 for no bound; reports beyond are refused")
}

func (f *noiseFlags) check(cmd *cobra.Command, protocol string) error {
	changed := cmd.Flags().Changed
	switch {
	case f.by != "" && f.by != byRelays && f.by != "clients":
		return cli.Usagef("invalid noise %q: want clients or relays", f.by)
	case f.by == "clients" && protocol == augmented.Name:
		return cli.Usagef("invalid noise clients: want relays for protocol %s", protocol)
	case !f.wanted(protocol):
		return cli.Refuse(cmd, "without --noise relays", relayNoiseFlags...)
	case changed("local-epsilon") && f.relays.LocalEpsilon == 0:
		return cli.Usagef("invalid local-epsilon 0: want a number in (0, 64], or no --local-epsilon")
	case f.relays.Batches > 1<<32-1:
		return cli.Usagef("invalid batches %d: want 0 to 4294967295", f.relays.Batches)
	}
	return cli.Refuse(cmd, "with --noise relays: no other client needs to be honest", "honest")
}

// wanted reports whether relays add noise, by --noise or because the protocol needs it.
func (f *noiseFlags) wanted(protocol string) bool {
	return f.by == byRelays || protocol == augmented.Name
}

// checkTarget returns an error unless the flags give a target for one epoch or for all epochs.
func checkTarget(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for name, other := range map[string]string{"total-epsilon": "total-delta", "total-delta": "total-epsilon"} {
		if changed(name) && !changed(other) {
			return cli.Refuse(cmd, "without --"+other+": a total has both", name)
		}
	}
	if changed("total-epsilon") && changed("total-delta") && !changed("epsilon") && !changed("delta") {
		return nil
	}
	for _, name := range []string{"epsilon", "delta"} {
		if !changed(name) {
			return cli.Usagef("missing flag --%s", name)
		}
	}
	return nil
}

// noiseSummary describes the noise that relays add.
type noiseSummary struct {
	Dummies float64 `json:"dummies"` // Mean number per relay and batch.
	Least   uint64  `json:"least"`   // Fewest and most that one relay adds to one batch.
	Most    uint64  `json:"most"`
	Batches uint64  `json:"batches"` // The most batches of an epoch; 0 for no bound.
}

// noiseOf describes the noise that a task's relays add; nil for none.
func noiseOf(t *task.Task) (*noiseSummary, error) {
	if t.Noise == nil {
		return nil, nil
	}
	s := &noiseSummary{Batches: t.Noise.Batches}
	s.Least, s.Most = t.Noise.Support()
	if s.Dummies = float64(s.Most); s.Least == s.Most {
		return s, nil
	}
	laws, err := relaynoise.NewLaws(t.Noise)
	if err != nil {
		return nil, err
	}
	s.Dummies = laws.Dummies()
	return s, nil
}

func (s *noiseSummary) print(w io.Writer) {
	if s == nil {
		return
	}
	varies := ""
	if s.Least < s.Most {
		varies = fmt.Sprintf(" on average, and at most %s", display.Number(float64(s.Most)))
	}
	fmt.Fprintf(w, "Every relay adds %s dummies%s to every batch.", display.Number(s.Dummies), varies)
	if s.Batches > 0 {
		fmt.Fprintf(w, " Batches of an epoch: at most %s.", display.Number(float64(s.Batches)))
	}
	fmt.Fprintln(w)
}
