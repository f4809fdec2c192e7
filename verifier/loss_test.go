package verifier_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// newSum sets up two relays for a sum over 100 clients of numbers from 5 to 10. 90 % of the clients are assumed honest.
func newSum(t *testing.T, protocol string, params planner.Params) *relaytest.Cascade {
	t.Helper()
	return relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		q := planner.Query{Name: "sum", Query: task.Sum, Protocol: protocol, Lo: 5, Hi: 10, Clip: true,
			Batch: 100, Honest: 0.9, Epsilon: 4, Delta: 1e-4, Params: params}
		calibrated, err := planner.Draft(q)
		require.NoError(t, err)
		calibrated.Epochs = draft.Epochs
		*draft = *calibrated
	}})
}

// lossy returns a batch that passed two relays. Each relay dropped some slots and signed that it did. Some of the slots
// that reach the verifier are unreadable.
func lossy(t *testing.T, c *relaytest.Cascade, clients int, first [][]byte, dropped [2]int,
	unreadable int) *onion.Batch {
	t.Helper()
	in := uint64(len(first))
	context := onion.Context{TaskID: c.Open.ID}
	first = first[dropped[0]:]
	ingress, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: context, Submissions: uint64(clients), In: []uint64{in},
	}, onion.Lanes{first})
	require.NoError(t, err)
	opener := c.Opener(t, 1, 0)
	var next [][]byte
	for _, slot := range first[dropped[1]:] {
		_, inner, err := opener.OpenSlot(0, slot)
		require.NoError(t, err)
		next = append(next, inner)
	}
	context.Hop = 1
	batch, err := onion.NewBatch(c.SignKey(t, 1), onion.BatchDraft{
		Context: context, Submissions: uint64(clients), In: []uint64{uint64(len(first))}, Source: ingress.Signed(),
	}, onion.Lanes{relaytest.Spoil(next, unreadable)})
	require.NoError(t, err)
	return batch
}

// TestLossIsSaidAtEveryHop: the report must say how many messages each relay and the verifier lost, and count the other
// reports. Its answer is for all clients. Its interval is wider by what the missing reports can change.
func TestLossIsSaidAtEveryHop(t *testing.T) {
	c := newSum(t, "realsum", nil)
	v := newVerifier(t, c)
	fresh := slots(t, c, 100)
	require.NoError(t, v.Add(lossy(t, c, 100, fresh, [2]int{2, 3}, 4)))
	r, err := v.Report()
	require.NoError(t, err)
	require.Equal(t, []verifier.MissingAt{{Hop: "relay 1", Messages: 2}, {Hop: "relay 2", Messages: 3},
		{Hop: "verifier", Messages: 4}}, r.MissingByHop)
	require.Equal(t, []uint64{100, 91, 9}, []uint64{r.Users, r.Reports, r.Missing})
	require.True(t, r.Usable)

	whole := newVerifier(t, c)
	require.NoError(t, whole.Add(chain(t, c, 0, slots(t, c, 100))))
	all, err := whole.Report()
	require.NoError(t, err)
	require.Zero(t, all.Missing)
	require.InDelta(t, width(all.Interval[0])+9*5, width(r.Interval[0]), 20, "91 reports err a little less than 100")
	require.Greater(t, r.Estimate[0], r.Interval[0][0])
	require.Less(t, r.Estimate[0], r.Interval[0][1])
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"reports":91,"missing":9,"usable":true`)
	require.Contains(t, string(text), `"missing_by_hop":[{"hop":"relay 1","messages":2}`)
}

func width(interval [2]float64) float64 { return interval[1] - interval[0] }

// TestAnUnusableReportHasNoEstimate: without one splitmix message, JSON, CSV, page and terminal must show the reason
// and no estimate. With an override they must show the estimate and the override.
func TestAnUnusableReportHasNoEstimate(t *testing.T) {
	c := newPair(t)
	v := newVerifier(t, c)
	require.NoError(t, v.Add(chain(t, c, 0, slots(t, c, 2))))
	require.NoError(t, v.Add(chain(t, c, 1, slots(t, c, 2),
		func(next [][]byte) [][]byte { return relaytest.Spoil(next, 1) })))
	alone := newVerifier(t, c)
	lost := func(next [][]byte) [][]byte { return relaytest.Spoil(next, 1) }
	require.NoError(t, alone.Add(chain(t, c, 0, slots(t, c, 2), lost)))
	only, err := alone.Report()
	require.NoError(t, err)
	for form, text := range forms(t, c, alone, only) {
		require.Contains(t, text, "1 of 1 batches lack messages", form)
		require.NotContains(t, text, "No batch has been released", form)
	}
	reason := "1 of 2 batches lack messages"
	for _, override := range []bool{false, true} {
		if override {
			v.ShowUnusable()
		}
		r, err := v.Report()
		require.NoError(t, err)
		require.False(t, r.Usable)
		require.Equal(t, override, r.Estimate != nil)
		for form, text := range forms(t, c, v, r) {
			require.Contains(t, text, reason, form)
			require.Equal(t, override, strings.Contains(text, "shown although it is unusable"), form)
			require.Equal(t, override, showsNumbers(form, text), form)
		}
	}
}

// forms returns the printed and served forms of a report, by name.
func forms(t *testing.T, c *relaytest.Cascade, v *verifier.Verifier, r *verifier.Report) map[string]string {
	t.Helper()
	server := httptest.NewServer(report.Handler(v))
	defer server.Close()
	var terminal, file strings.Builder
	require.NoError(t, report.Print(&terminal, r))
	require.NoError(t, report.WriteCSV(&file, r))
	return map[string]string{"json": get(t, server.URL+"/api/report"), "page": get(t, server.URL+"/"),
		"csv": file.String(), "terminal": terminal.String()}
}

// showsNumbers reports whether a form of a report shows an estimate.
func showsNumbers(form, text string) bool {
	return strings.Contains(text, map[string]string{"json": `"estimate":[0-9-]`, "page": "<data ", "csv": "all,,0,",
		"terminal": "interval"}[form]) || form == "json" && !strings.Contains(text, `"estimate":null`)
}

// TestWhatMissingMessagesCanDo: of about 900 messages of protocol correlated from 100 clients, 15 missing ones could
// change the sum by 113 of its range of 500, and 80 by 600. Only the second report is unusable.
func TestWhatMissingMessagesCanDo(t *testing.T) {
	c := newSum(t, "correlated", planner.Params{"max": 2})
	v := newVerifier(t, c)
	fresh := slots(t, c, 100)
	require.NoError(t, v.Add(lossy(t, c, 100, fresh, [2]int{5, 5}, 5)))
	r, err := v.Report()
	require.NoError(t, err)
	require.True(t, r.Usable, r.UnusableBecause)
	require.EqualValues(t, 15, r.Missing)
	require.Greater(t, width(r.Interval[0]), 15*5*1.5, "a message is from -1 to 2 halves of 5")

	v = newVerifier(t, c)
	require.NoError(t, v.Add(lossy(t, c, 100, fresh, [2]int{80, 0}, 0)))
	r, err = v.Report()
	require.NoError(t, err)
	require.False(t, r.Usable)
	require.Contains(t, r.UnusableBecause, "80 messages are missing, and could have changed the answer by its "+
		"whole range")
	require.Nil(t, r.Interval)
}

// TestTooSmallABatchOverExposesItsClients: a batch below the relays' minimum reached the verifier. The verifier must
// not open it, or withhold its result. The ledger must not state that it cost nothing, nor that the claim holds.
func TestTooSmallABatchOverExposesItsClients(t *testing.T) {
	c := newCascade(t)
	for name, bad := range map[string]*onion.Batch{
		"by its relays' own counts": lossy(t, c, batchSize, slots(t, c, batchSize), [2]int{3, 0}, 0),
		"when it is opened":         lossy(t, c, batchSize, slots(t, c, batchSize), [2]int{}, 3),
	} {
		v := newVerifier(t, c)
		require.NoError(t, v.Add(bad), name)
		r, err := v.Report()
		require.NoError(t, err)
		require.Zero(t, r.Batches)
		require.EqualValues(t, batchSize, r.OverExposed, name)
		require.Equal(t, r.MessagesSent, r.CoverMessages+r.Verified+r.Rejected+r.Withheld, name)
		require.Len(t, r.Ledger.Epochs, 1, name)
		require.EqualValues(t, batchSize, r.Ledger.Epochs[0].OverExposed)
		require.Equal(t, *r.LocalEpsilon, *r.Ledger.Epsilon, "one client alone, by randomized response")
		require.Greater(t, *r.Ledger.Epsilon, r.Epsilon)
		for form, text := range forms(t, c, v, r) {
			require.NotRegexp(t, `ε = 0<|epsilon 0,|"epsilon":0[,}]`, text, form)
		}
		require.Contains(t, forms(t, c, v, r)["terminal"], "The guarantee does not hold for 20 clients")
		require.Contains(t, forms(t, c, v, r)["page"], "The guarantee does not hold for 20 clients")
	}
	c = newPair(t) // no ε₀ bounds this protocol
	v := newVerifier(t, c)
	small := lossy(t, c, 2, slots(t, c, 2), [2]int{2, 0}, 0)
	require.NoError(t, v.Add(small), "destroyed")
	require.NoError(t, v.Add(chain(t, c, 1, slots(t, c, 2),
		func(next [][]byte) [][]byte { return relaytest.Spoil(next, 2) })))
	r, err := v.Report()
	require.NoError(t, err)
	require.Nil(t, r.Ledger.Epsilon)
	require.Contains(t, forms(t, c, v, r)["json"], `"ledger":{"epsilon":null`)
	require.Contains(t, forms(t, c, v, r)["terminal"], "no ε: δ =")
}
