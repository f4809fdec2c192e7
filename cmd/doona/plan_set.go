package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// setFile is the file that --set names.
type setFile struct {
	Users        uint64     `json:"users"`         // Reports of each query in an epoch.
	Epochs       uint64     `json:"epochs"`        // Of each query; or Days.
	Days         uint64     `json:"days"`          // Days of the total. Each query then says per day, week or month.
	TotalEpsilon setNumber  `json:"total_epsilon"` // Over all queries and epochs together.
	TotalDelta   setNumber  `json:"total_delta"`
	Honest       *setNumber `json:"honest"` // Default .9.
	Hops         int        `json:"hops"`   // Default 2.
	Queries      []setQuery `json:"queries"`

	valued []*setQuery // Those that are not bare.
}

// setQuery is one query, with its own limits.
type setQuery struct {
	Name         string        `json:"name"`
	Query        task.Query    `json:"query"`
	Weight       setNumber     `json:"weight"`  // Default 1, if no query has a share.
	Share        setNumber     `json:"share"`   // Part of the budget, in place of a weight.
	Bare         bool          `json:"bare"`    // With doona set new: a table without values, which counts visits.
	Per          planner.Clock `json:"per"`     // With days: how long an epoch is. Default day.
	Cap          string        `json:"cap"`     // R/W: at most R reports of a browser in any W epochs.
	Pace         string        `json:"pace"`    // r/w, with a cap: at most r reports in each w epochs.
	Events       string        `json:"events"`  // K/W: at most K reports in any W epochs differ from the default.
	Default      uint64        `json:"default"` // With events: the cell of no event. Default 0.
	Range        string        `json:"range"`   // Default 0,1.
	Bins         uint64        `json:"bins"`
	Labels       bool          `json:"labels"`
	Dim          uint64        `json:"dim"`
	Length       uint64        `json:"length"`
	Sparse       bool          `json:"sparse"`
	NoClip       bool          `json:"no_clip"`
	Noise        planner.Noise `json:"noise"` // Default any.
	MaxSlots     uint64        `json:"max_slots"`
	MaxMessages  setNumber     `json:"max_messages"`
	MaxDummies   setNumber     `json:"max_dummies"`
	LocalEpsilon setNumber     `json:"local_epsilon"`
}

// setNumber is a number, which YAML may have as a text: it takes 1e-5 for one.
type setNumber float64

// UnmarshalJSON implements [json.Unmarshaler].
func (n *setNumber) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(bytes.Trim(raw, `"`), (*float64)(n))
}

// setResult is what `doona plan --set` prints.
type setResult struct {
	Users   uint64   `json:"users"`
	Days    uint64   `json:"days,omitempty"`
	Epsilon float64  `json:"epsilon"` // Over all queries together, at most total_epsilon.
	Delta   float64  `json:"delta"`
	Added   float64  `json:"epsilon_sum"`    // Sum over queries, each composed over its epochs.
	Bytes   float64  `json:"bytes_per_user"` // Bytes that a visitor sends per epoch, over all queries.
	Theorem string   `json:"theorem"`
	Queries []setRow `json:"queries"`

	Devices groupGuarantee `json:"devices"` // Over all queries, for a person with --devices devices.
}

// setRow is the plan of one query of a set.
type setRow struct {
	Name    string  `json:"name"`
	Share   float64 `json:"share"` // Part of the total, of 1.
	Weight  float64 `json:"weight,omitempty"`
	Per     string  `json:"per,omitempty"`    // With days: how long an epoch is.
	Cap     string  `json:"cap,omitempty"`    // R/W.
	Pace    string  `json:"pace,omitempty"`   // r/w.
	Events  string  `json:"events,omitempty"` // K/W.
	Epochs  uint64  `json:"epochs"`           // Of the query.
	Reports uint64  `json:"reports"`          // Most reports of one browser in these: fewer with a cap.
	planRow
	Explained *setExplained `json:"explained,omitempty"` // With --explain.
}

// setExplained says why a query of a set got its way and its law.
type setExplained struct {
	Laws   []setLaw   `json:"laws"` // Kinds of noise by relays; empty for noise by clients and for sums.
	Others []setOther `json:"others"`
}

// setLaw is the least noise of one kind.
type setLaw struct {
	Law       string   `json:"law"`
	Deviation *float64 `json:"deviation"` // Of a cell's dummies of one relay; null: none keeps the total.
	Dummies   *float64 `json:"dummies"`   // Mean of a cell and relay.
}

// setOther is a way that was not chosen.
type setOther struct {
	Protocol string        `json:"protocol"`
	Noise    planner.Noise `json:"noise"`
	RMSE     *float64      `json:"rmse"` // With the same part of the total; null if impossible.
	Why      string        `json:"why"`
}

const setTheorem = "all tasks are fixed before the first report, so the laws of all queries and epochs " +
	"compose as one " +
	"product (docs/proofs/loss-laws.md, Theorem 3)"

// parseSetFile parses the file of a set, in JSON or YAML.
func parseSetFile(raw []byte) (*setFile, error) {
	raw, err := codec.Document(raw)
	if err != nil {
		return nil, err
	}
	locate := taskfile.Locate
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		if raw, err = yaml.YAMLToJSON(raw); err != nil {
			return nil, err
		}
		locate = func(_ []byte, err error) error { return err } // Its lines are not those of the file.
	}
	half := setNumber(.9)
	f := &setFile{Hops: planner.DefaultRelays, Honest: &half}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if err := locate(raw, in.Decode(f)); err != nil {
		return nil, err
	}
	return f, taskfile.CheckKeys(raw, func(_, key string) bool { return key == strings.ToLower(key) })
}

// readSet reads the file of a set. Bare queries are in the file alone, because they cost nothing.
func readSet(path string) (*setFile, planner.Set, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, planner.Set{}, fmt.Errorf("couldn't read the set: %w", err)
	}
	f, err := parseSetFile(raw)
	if err != nil {
		return nil, planner.Set{}, fmt.Errorf("couldn't read the set %s: %w", path, err)
	}
	s := planner.Set{Users: f.Users, Epsilon: float64(f.TotalEpsilon), Delta: float64(f.TotalDelta)}
	shared := slices.ContainsFunc(f.Queries, func(q setQuery) bool { return q.Share != 0 })
	names := map[string]bool{}
	for i := range f.Queries {
		q := &f.Queries[i]
		if names[q.Name] || !plain(q.Name) {
			return nil, s, cli.Usagef("invalid name %q: want a different one for each query, of letters, "+
				"digits, - and _",
				q.Name)
		}
		names[q.Name] = true
		if q.Bare {
			if err := q.checkBare(); err != nil {
				return nil, s, err
			}
			continue
		}
		f.valued = append(f.valued, q)
		g, err := f.goal(q)
		if err != nil {
			return nil, s, err
		}
		s.Goals = append(s.Goals, g)
		switch {
		case shared && q.Weight != 0:
			return nil, s, cli.Usagef("invalid weight %g of query %s: want a share, as the others have", q.Weight, q.Name)
		case shared:
			s.Shares = append(s.Shares, float64(q.Share))
		default:
			s.Weights = append(s.Weights, float64(cmp.Or(q.Weight, 1)))
		}
	}
	return f, s, nil
}

// checkBare returns an error if a bare query has more than a name and a clock.
func (q *setQuery) checkBare() error {
	if *q != (setQuery{Name: q.Name, Bare: true, Per: q.Per}) {
		return cli.Usagef("invalid query %s: want only name and per with bare, because it has no values", q.Name)
	}
	return nil
}

// plain reports whether a name may be used as a file name: 1 to 64 letters, digits, - and _.
func plain(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= 64 && strings.Trim(name, letters) == ""
}

// goal returns the goal of a query, and sets the defaults of q.
func (f *setFile) goal(q *setQuery) (g planner.Goal, err error) {
	if q.Noise == "" {
		q.Noise = planner.NoiseAny
	}
	span := q.Range
	if span == "" {
		span = "0,1"
	}
	given := map[string]string{"range": q.Range}
	if q.Sparse {
		given["sparse"] = "true"
	}
	if q.NoClip {
		given["no-clip"] = "true"
	}
	if err := planner.CheckOptions(q.Query, func(option string) (string, bool) {
		return given[option], given[option] != ""
	}); err != nil {
		return g, err
	}
	g = planner.Goal{Noise: q.Noise, Sparse: q.Sparse, Hops: f.Hops, LeastLocal: float64(q.LocalEpsilon),
		MaxSlots: q.MaxSlots, MaxMessages: float64(q.MaxMessages), MaxDummies: float64(q.MaxDummies),
		Batches: defaultBatches}
	g.Query = planner.Query{Name: q.Name, Query: q.Query, Bins: q.Bins, Labels: q.Labels, Dim: q.Dim, Length: q.Length,
		Clip:   !q.NoClip,
		Honest: float64(*f.Honest)}
	if q.Events == "" && q.Default != 0 {
		return g, cli.Usagef("invalid default %d of query %s: want events with it", q.Default, q.Name)
	}
	g.Events.Default = q.Default
	if err := cmp.Or(g.Cap.Parse("cap", q.Cap), g.Pace.Parse("pace", q.Pace), g.Events.Parse(q.Events)); err != nil {
		return g, err
	}
	if g.Epochs, err = f.epochs(q); err != nil {
		return g, err
	}
	g.Lo, g.Hi, err = cli.ParseRange(span)
	return g, err
}

// epochs returns the most epochs of a query that begin in the set's time.
func (f *setFile) epochs(q *setQuery) (uint64, error) {
	switch {
	case f.Days == 0 && q.Per != "":
		return 0, cli.Usagef("invalid per %q of query %s: want days in the set, from which its epochs are counted",
			string(q.Per), q.Name)
	case f.Days == 0:
		return f.Epochs, nil
	case f.Epochs != 0:
		return 0, cli.Usagef("invalid epochs %d: want either epochs or days", f.Epochs)
	}
	return cmp.Or(q.Per, planner.Daily).Epochs(f.Days)
}

// runSet plans a set of queries. With --out it writes a task for each query.
func (f *planFlags) runSet(cmd *cobra.Command) error {
	if err := f.devices.check(); err != nil {
		return err
	}
	file, s, err := readSet(f.set)
	if err != nil {
		return cli.FlagError(err)
	}
	bar := cli.Progress("calibrating", 2*len(s.Goals))
	plan, err := planner.PlanSet(s, func(int) { bar.Add(1) })
	if err != nil {
		return cli.FlagError(err)
	}
	r := setResult{Users: s.Users, Days: file.Days, Epsilon: plan.Epsilon, Delta: s.Delta, Added: plan.Added,
		Theorem: setTheorem}
	if r.Devices, err = newGroup(r.Epsilon, r.Delta, uint64(f.devices)); err != nil {
		return err
	}
	for i := range plan.Ways {
		row, err := newPlanRow(s.Goals[i], &plan.Ways[i], &plan.Ways[i])
		if err != nil {
			return err
		}
		row.Reason = ""
		r.Bytes += plan.Ways[i].Bytes
		out := setRow{Name: s.Goals[i].Name, Share: s.Part(i), Epochs: s.Goals[i].Epochs, Reports: s.Reports(i),
			planRow: row}
		out.describe(file.valued[i], file.Days > 0, &s, i)
		if f.explain {
			if out.Explained, err = explainSet(s, plan, i); err != nil {
				return err
			}
		}
		r.Queries = append(r.Queries, out)
	}
	if f.plot != "" {
		if err := plotSet(f.plot, &r); err != nil {
			return err
		}
	}
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fmt.Errorf("couldn't make the folder: %w", err)
		}
		for i, w := range plan.Ways {
			if err := writeJSON(filepath.Join(f.out, s.Goals[i].Name+".json"), w.Task); err != nil {
				return err
			}
		}
	}
	return cli.Print(cmd, r, func(w io.Writer) error { return printSet(w, &r) })
}

// describe sets what the set's file says of a query.
func (r *setRow) describe(q *setQuery, days bool, s *planner.Set, i int) {
	r.Cap, r.Pace, r.Events = q.Cap, q.Pace, q.Events
	if s.Weights != nil {
		r.Weight = s.Weights[i]
	}
	if days {
		r.Per = string(cmp.Or(q.Per, planner.Daily))
	}
}

// explainSet compares the laws of noise by relays and the other ways for query i.
func explainSet(s planner.Set, plan *planner.SetPlan, i int) (*setExplained, error) {
	laws, err := s.Laws(plan, i)
	if err != nil {
		return nil, err
	}
	out := &setExplained{Laws: []setLaw{}, Others: []setOther{}}
	for _, law := range laws {
		one := setLaw{Law: law.Law}
		if law.Deviation > 0 {
			one.Deviation, one.Dummies = &law.Deviation, &law.Dummies
		}
		out.Laws = append(out.Laws, one)
	}
	best := plan.Ways[i].RMSE
	for _, w := range plan.Others[i] {
		other := setOther{Protocol: w.Protocol, Noise: w.Noise}
		if w.Why != nil {
			other.Why = w.Why.Error()
		} else {
			other.RMSE = &w.RMSE
			other.Why = decimal.Format(w.RMSE/best, 3) + " times the error"
			if w.RMSE < best {
				other.Why += "; noise by relays is recommended up to " + decimal.Format(planner.RecommendedError, 3) +
					" times the least error"
			}
		}
		out.Others = append(out.Others, other)
	}
	return out, nil
}

// plotSet draws the error of each query against its share, and the rule √(reports/share) through it: what another share
// would make of it.
func plotSet(path string, r *setResult) error {
	chart := display.Plot{LogX: true, LogY: true, Title: "Error of each query against its share", XLabel: "share of the total, %",
		YLabel: "root mean square error of an entry in one epoch",
		Note:   "The lines are the rule that the error is proportional to 1/√share; the dots are the plan."}
	planned := display.Line{Name: "the plan", Dots: true}
	for _, q := range r.Queries {
		planned.Points = append(planned.Points, [2]float64{100 * q.Share, *q.RMSE})
		line := display.Line{Name: q.Name}
		for share := 1.0; share <= 100.001; share *= math.Pow(100, 1./16) {
			line.Points = append(line.Points, [2]float64{share, *q.RMSE * math.Sqrt(100*q.Share/share)})
		}
		chart.Lines = append(chart.Lines, line)
	}
	chart.Lines = append(chart.Lines, planned)
	var svg strings.Builder
	chart.SVG(&svg)
	if err := os.WriteFile(path, []byte(svg.String()), 0o644); err != nil {
		return fmt.Errorf("couldn't write the chart: %w", err)
	}
	return nil
}

// printExplained prints why a query got its way and its law.
func (q *setRow) printExplained(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s %% of the total", q.Name, decimal.Format(100*q.Share, 3))
	if q.Weight > 0 {
		fmt.Fprintf(w, ", weight %s", decimal.Format(q.Weight, 3))
	}
	if q.Per != "" {
		fmt.Fprintf(w, "; an epoch is a %s", q.Per)
	}
	if q.Cap != "" {
		fmt.Fprintf(w, "; cap %s", q.Cap)
	}
	if q.Pace != "" {
		fmt.Fprintf(w, ", pace %s", q.Pace)
	}
	if q.Events != "" {
		fmt.Fprintf(w, "; events %s. Its noise covers only the events in %d of %d reports.\n", q.Events, q.Reports,
			q.Epochs)
	} else {
		fmt.Fprintf(w, ". Its noise covers %d of %d reports.\n", q.Reports, q.Epochs)
	}
	for _, law := range q.Explained.Laws {
		if law.Deviation == nil {
			fmt.Fprintf(w, "  %s: none keeps this part of the total within the sizes that a client can check\n", law.Law)
			continue
		}
		fmt.Fprintf(w, "  %s: a cell’s dummies of one relay have a standard deviation of %.4g, on average %.4g\n", law.Law,
			*law.Deviation, *law.Dummies)
	}
	for _, o := range q.Explained.Others {
		fmt.Fprintf(w, "  not %s, noise by %s: %s\n", o.Protocol, o.Noise, o.Why)
	}
}

func printSet(w io.Writer, r *setResult) error {
	within := ""
	if r.Days > 0 {
		within = fmt.Sprintf(" in any %d days", r.Days)
	}
	fmt.Fprintf(w, "%d queries of %s users: (%s, %s)-DP together%s\n\n", len(r.Queries), display.Number(float64(r.Users)),
		decimal.Up(r.Epsilon, 4), decimal.Up(r.Delta, 3), within)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "\tshare\treports\tprotocol\tnoise\tε\tδ\trmse\tinterval\tslots × lanes\tbytes\tdummies\talone\tcollude")
	for _, q := range r.Queries {
		slots := "varies"
		if q.Slots != nil {
			slots = strconv.FormatUint(*q.Slots, 10)
		}
		fmt.Fprintf(tab, "%s\t%.3g %%\t%d of %d\t%s\t%s\t", q.Name, 100*q.Share, q.Reports, q.Epochs, q.Protocol, q.Noise)
		fmt.Fprintf(tab, "%.4g\t%.4g\t%.4g\t%.4g\t%s × %d\t%.0f\t%.4g\t%s\t%s\n", *q.Epsilon, *q.Delta, *q.RMSE,
			*q.IntervalWidth, slots, *q.Lanes, *q.BytesPerUser, *q.Dummies, orDash(q.EpsilonNoHonest),
			orDash(q.LocalEpsilon))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for i := range r.Queries {
		if r.Queries[i].Explained != nil {
			r.Queries[i].printExplained(w)
		}
	}
	fmt.Fprintf(w, "\nA person who reports from %d devices throughout has %s.\n", r.Devices.Reports, r.Devices.text())
	_, err := fmt.Fprintf(w, "\nA visitor sends %.0f bytes in an epoch. A browser does not know that these tasks were "+
		"chosen together. "+
		"Its budget\ncomposes each query and adds the queries up, and so counts ε = %s.\n%s.\n", r.Bytes,
		decimal.Up(r.Added, 4), strings.ToUpper(r.Theorem[:1])+r.Theorem[1:])
	return err
}
