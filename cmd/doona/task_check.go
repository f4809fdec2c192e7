package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func taskCheckCommand() *cobra.Command {
	unchecked := false
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a task's signature, parameters and claim",
		Long: `Check does what a client does before it reports: it checks the signature and the key lists of a
bundle and the parameters, and derives the claimed (ε, δ) again. A JSON document has no signature;
Check says what it did not check.

If the claim is not proven, or no relay would serve the task, Check prints the reason and exits with
status 1. --unchecked prints the task anyway, and why it should not be used.`,
		Example: `  doona init try
  doona task check try/task.bundle`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			t, open, err := taskfile.Load(args[0])
			if err != nil {
				return err
			}
			m, err := registry.Open(t)
			if err != nil {
				return err
			}
			doubts := doubt(t, m, 0)
			if err := doubts.refuse(unchecked); err != nil {
				return err
			}
			owner := ""
			if open != nil {
				owner = taskfile.FormatKey(open.Owner)
			}
			return printTask(cmd, t, owner, nil, doubts, nil)
		},
	}
	cmd.Flags().BoolVar(&unchecked, "unchecked", false, "continue with a false claim, or a task that no relay would serve")
	return cmd
}

// taskSummary is what `task new` and `task check` print.
type taskSummary struct {
	ID              string            `json:"id,omitempty"`    // Empty for a draft.
	Owner           string            `json:"owner,omitempty"` // If the signature was checked; empty for a JSON document.
	Query           task.Query        `json:"query"`
	Protocol        string            `json:"protocol"`
	Rule            string            `json:"rule"`
	Params          map[string]string `json:"params"`
	Epsilon         string            `json:"epsilon"`
	Delta           string            `json:"delta"`
	LocalEpsilon    *float64          `json:"local_epsilon"`     // If all relays collude; null if no guarantee is left.
	EpsilonNoHonest *float64          `json:"epsilon_no_honest"` // ε′; null if no guarantee is left.
	EpsilonHonest   float64           `json:"epsilon_honest"`    // ε in a batch with n_min honest clients.
	Batch           uint64            `json:"batch"`
	NMin            uint64            `json:"n_min"`
	Padding         task.Padding      `json:"padding"`
	Lanes           uint64            `json:"lanes"`
	// Slots of one client in a lane; an upper bound under padding none.
	Slots uint64 `json:"slots"`
	// The same under padding full, for a task with padding none that could have full padding.
	SlotsFull    *uint64 `json:"slots_full,omitempty"`
	MessageBytes uint64  `json:"message_bytes"`
	Unchecked    doubts  `json:"unchecked,omitempty"` // Doubts that the user waived.

	// Estimated maximum cost of a full batch for each relay, in order, and for the verifier. A draft counts as having
	// two relays.
	BatchNeeds []handover.Need `json:"batch_needs"`

	Noise *noiseSummary `json:"noise,omitempty"` // Dummies that every relay adds; nil for none.
	Total *totalSummary `json:"total,omitempty"` // The claim of all epochs together.
	// (ε, δ) of all epochs together, as claimed or derived; nil unless the task has several epochs.
	Together *compose.Spend `json:"together,omitempty"`

	Group   groupSummary   `json:"group"` // The guarantee of a person with several reports in an epoch.
	Clients clientsSummary `json:"clients"`
	Stream  *streamSummary `json:"stream,omitempty"` // The task's position in a stream.
	Chosen  *choice        `json:"chosen,omitempty"` // The plan's choice; nil if the user named the protocol.
}

// totalSummary is the claim of all epochs.
type totalSummary struct {
	Epsilon string `json:"epsilon"`
	Delta   string `json:"delta"`
	Epochs  uint64 `json:"epochs"`
	Reports uint64 `json:"reports"` // The most reports of one browser in these epochs: fewer with a cap.
}

// fullSlots returns the slots per lane that a task with padding none would have under padding full. It returns nil for
// other tasks, and if the protocol cannot have full padding.
func fullSlots(t *task.Task) *uint64 {
	if t.Slots.Padding != task.PaddingNone {
		return nil
	}
	full := *t
	full.Slots.Padding = task.PaddingFull
	if registry.Calibrate(&full) != nil || full.Slots.Padding != task.PaddingFull {
		return nil
	}
	return &full.Slots.PerLane
}

// printTask prints a summary of a task. owner is empty unless a signature was checked. full is the slots per lane under
// padding full, or nil. chosen is nil if the user named the protocol.
func printTask(cmd *cobra.Command, t *task.Task, owner string, full *uint64, doubts doubts, chosen *choice) error {
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	s, err := summarize(t, m)
	if err != nil {
		return err
	}
	s.Owner, s.SlotsFull, s.Unchecked, s.Chosen = owner, full, doubts, chosen
	needs, caveat, err := verifier.Needs(t)
	if err != nil {
		return err
	}
	return cli.Print(cmd, s, func(w io.Writer) error {
		s.printHeading(w)
		s.printPromise(w, t, m, needs)
		s.Stream.print(w, t)
		if caveat != "" {
			fmt.Fprintln(w, caveat)
		}
		s.printCosts(w, t)
		return nil
	})
}

// summarize returns the summary of a task without Owner, SlotsFull, Unchecked and Chosen, which printTask sets.
func summarize(t *task.Task, m protocols.Mechanism) (*taskSummary, error) {
	s := &taskSummary{Query: t.Query, Protocol: t.Protocol, Rule: t.Rule, Params: map[string]string{},
		Epsilon: t.Claim.Epsilon.String(), Delta: t.Claim.Delta.String(), EpsilonHonest: verifier.EpsilonHonest(t, m),
		Batch: t.Batch.Size, NMin: t.Batch.Min, Padding: t.Slots.Padding, Lanes: t.Slots.Lanes, Slots: t.Slots.PerLane,
		MessageBytes: t.Slots.MessageBytes, Clients: clientsSummary{Kind: t.Clients.Kind, Origins: t.Clients.Origins},
		Stream: streamOf(t)}
	for _, p := range t.Params {
		s.Params[p.Key] = p.Value.String()
	}
	s.EpsilonNoHonest, s.LocalEpsilon = verifier.WorstCaseEpsilons(t, m)
	var err error
	if s.Group, err = newGroupSummary(t); err != nil {
		return nil, err
	}
	if t.Clients.Kind == task.ClientAddress {
		cost, err := planner.NewQuotaCost(t, m)
		if err != nil {
			return nil, err
		}
		s.Clients.Quota = &cost
	}
	if s.Noise, err = noiseOf(t); err != nil {
		return nil, err
	}
	if s.BatchNeeds, err = planner.MostNeeds(t, planner.DefaultRelays); err != nil {
		return nil, err
	}
	reports := t.Epochs.MostReports(t.Epochs.Count)
	if t.Epochs.Count > 1 {
		spent, err := protocols.EpochsSpend(t, m.Law, t.MostCopies(t.Epochs.Count))
		if err != nil {
			return nil, err
		}
		s.Together = &spent
	}
	if total := t.Claim.Total; !total.IsZero() {
		s.Total = &totalSummary{total.Epsilon.String(), total.Delta.String(), t.Epochs.Count, reports}
	}
	if len(t.Relays) > 0 {
		s.ID = taskfile.ID(t).String()
	}
	return s, nil
}

// printHeading names the task, and says which checks were waived.
func (s *taskSummary) printHeading(w io.Writer) {
	s.Unchecked.print(w)
	s.Chosen.print(w)
	switch {
	case s.ID == "":
		fmt.Fprintln(w, "a draft: no signature, parties or epochs to check")
	case s.Owner == "":
		fmt.Fprintf(w, "task %s\na JSON document: signature and key lists are not checked\n", s.ID)
	default:
		fmt.Fprintf(w, "task %s\nsigned by %s\n", s.ID, s.Owner)
	}
}

func (s *taskSummary) printPromise(w io.Writer, t *task.Task, m protocols.Mechanism, needs string) {
	var params []string
	for _, p := range t.Params {
		params = append(params, p.Key+" = "+p.Value.String())
	}
	fmt.Fprintf(w, `%s by %s, rule %s, parameters %s
(%s, %s)-DP by substitution, provided %s.
%s It is not hidden that a client took part.
`, t.Query, t.Protocol, t.Rule, cmp.Or(strings.Join(params, ", "), "none"), t.Claim.Epsilon, t.Claim.Delta,
		strings.Replace(needs, "n_min", strconv.FormatUint(t.Batch.Min, 10), 1), verifier.WorstCase(t, m))
	if honest := verifier.WithHonest(t, m); honest != "" {
		fmt.Fprintln(w, honest)
	}
	if limit := t.Epochs.Cap; !limit.IsZero() {
		fmt.Fprintf(w, "A browser makes at most %d reports in any %d epochs, %d in all.\n", limit.Reports, limit.Window,
			t.Epochs.MostReports(t.Epochs.Count))
	}
	if pace := t.Epochs.Pace; !pace.IsZero() {
		fmt.Fprintf(w, "By its pace it makes at most %d in each %d epochs, from a random one on: of a browser that comes in "+
			"every epoch, %s %% of the epochs are counted.\n", pace.Reports, pace.Window,
			decimal.Format(100*float64(pace.Reports)/float64(pace.Window), 3))
	}
	if e := t.Epochs.Events; !e.IsZero() {
		fmt.Fprintln(w, e.Uncounted())
	}
	if s.Total != nil {
		fmt.Fprintf(w, "All %d epochs together: (%s, %s)-DP.\n", s.Total.Epochs, s.Total.Epsilon, s.Total.Delta)
	} else if s.Together != nil {
		fmt.Fprintf(w, "All %d epochs together: (%s, %s)-DP, composed by their privacy-loss laws; they are fixed before the "+
			"first.\n",
			t.Epochs.Count, decimal.Up(s.Together.Epsilon, 3), decimal.Up(s.Together.Delta, 3))
	}
	s.Group.print(w)
}

func (s *taskSummary) printCosts(w io.Writer, t *task.Task) {
	s.Noise.print(w)
	s.Clients.print(w, t)
	fmt.Fprintf(w, "Padding %s. Lanes: %d, slots in each: %d, bytes of a message: %d.\n", s.Padding, s.Lanes,
		s.Slots, s.MessageBytes)
	if s.Padding == task.PaddingNone {
		fmt.Fprintln(w, "These are upper bounds: the first relay sees the number of a client's messages, and so its noise.")
	}
	fmt.Fprintf(w, "A batch takes up to %s.\n", handover.Worst(s.BatchNeeds))
	if s.SlotsFull != nil {
		fmt.Fprintf(w, "Under padding full each client would send exactly %d slots in each lane.\n", *s.SlotsFull)
	}
}
