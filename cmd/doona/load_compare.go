package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/wire/task"
)

// numbers is an answer in JSON: a number or an array of them.
type numbers []float64

func (n numbers) MarshalJSON() ([]byte, error) {
	if len(n) == 1 {
		return json.Marshal(n[0])
	}
	return json.Marshal([]float64(n))
}

func (n *numbers) UnmarshalJSON(raw []byte) error { return oneOrMore(raw, (*[]float64)(n)) }

// ranges are intervals in JSON: [lo, hi] or null, or an array of them. null is no interval: all numbers are possible.
type ranges [][2]float64

func (r *ranges) UnmarshalJSON(raw []byte) error {
	var list []*[2]float64
	if err := oneOrMore(raw, &list); err != nil {
		return err
	}
	if list == nil { // null alone
		list = make([]*[2]float64, 1)
	}
	*r = nil
	for _, ends := range list {
		if ends == nil {
			ends = &[2]float64{math.Inf(-1), math.Inf(1)}
		}
		*r = append(*r, *ends)
	}
	return nil
}

// oneOrMore reads an array, or a single element as an array of one.
func oneOrMore[T any](raw []byte, into *[]T) error {
	if json.Unmarshal(raw, into) == nil {
		return nil
	}
	*into = make([]T, 1)
	return json.Unmarshal(raw, &(*into)[0])
}

// verifierReport holds the fields that load reads from a verifier's report.
type verifierReport struct {
	Users         uint64  `json:"users"`
	BatchSize     uint64  `json:"batch_size"`
	Estimate      numbers `json:"estimate"`
	StandardError numbers `json:"standard_error"`
	Band          ranges  `json:"band"`
}

// comparison compares the verifier's estimate with the truth.
type comparison struct {
	Users    uint64  `json:"users"` // Number of clients that truth and estimate cover.
	Truth    numbers `json:"truth"`
	Estimate numbers `json:"estimate"`
	Worst    float64 `json:"worst_standard_errors"` // Largest error of an entry, in standard errors.
	Reaches  float64 `json:"worst_band_reaches"`    // Largest error of an entry, as a multiple of what reaches returns.
	InBand   bool    `json:"truth_in_band"`         // Whether the 95 % band contains the truth in all entries.
	Seconds  float64 `json:"seconds"`               // From the last acknowledgement to the estimate.
}

// prepare returns the clients' values. With --report it checks that the verifier has no estimate of other clients yet.
func (f *loadFlags) prepare(ctx context.Context, t *task.Task) (openloop.Values, error) {
	values, err := openloop.NewValues(t, f.values, f.format)
	if err != nil || f.report == "" {
		return values, err
	}
	if t.Query.Info().Shape == task.PerText {
		return nil, fmt.Errorf("couldn't compare with the truth: the answer to a task for strings is a list")
	}
	before, err := f.readAnswer(ctx)
	if err == nil && before.Users > 0 {
		err = fmt.Errorf("couldn't compare with the truth: the verifier already has an estimate of %d other clients",
			before.Users)
	}
	return values, err
}

func (f *loadFlags) readAnswer(ctx context.Context) (*verifierReport, error) {
	text, err := f.fetch(ctx, strings.TrimSuffix(f.report, "/")+"/api/report")
	if err != nil {
		return nil, fmt.Errorf("couldn't read the verifier's report: %w", err)
	}
	a := new(verifierReport)
	if err := json.Unmarshal([]byte(text), a); err != nil || a.BatchSize == 0 {
		return nil, fmt.Errorf("couldn't read the verifier's report: %s/api/report is no report: give --report the "+
			"URL of the task's page", f.report)
	}
	return a, nil
}

// compare waits for the estimate of all accepted clients.
func (f *loadFlags) compare(ctx context.Context, truth *openloop.Truth) (*comparison, error) {
	begun := time.Now()
	answer, accepted, err := truth.Answer()
	if err != nil {
		return nil, err
	}
	a, err := f.await(ctx, accepted)
	if err != nil {
		return nil, err
	}
	c := &comparison{Users: accepted, Truth: answer, Estimate: a.Estimate, InBand: true,
		Seconds: time.Since(begun).Seconds()}
	if n := len(c.Truth); len(a.Estimate) != n || len(a.StandardError) != n || len(a.Band) != n {
		return nil, fmt.Errorf("couldn't compare with the truth: the verifier's estimate has %d entries, and the "+
			"truth %d",
			len(a.Estimate), n)
	}
	for j, truth := range c.Truth {
		if a.StandardError[j] > 0 {
			c.Worst = max(c.Worst, math.Abs(a.Estimate[j]-truth)/a.StandardError[j])
		}
		c.Reaches = max(c.Reaches, reaches(truth, a.Estimate[j], a.Band[j]))
		c.InBand = c.InBand && a.Band[j][0] <= truth && truth <= a.Band[j][1]
	}
	return c, nil
}

// reaches returns the distance from the estimate to the truth, divided by the distance from the estimate to the band's
// end on the same side. A value above 1 means that the truth is outside the band.
func reaches(truth, estimate float64, band [2]float64) float64 {
	off, reach := truth-estimate, band[1]-estimate
	if off < 0 {
		off, reach = -off, estimate-band[0]
	}
	switch {
	case off == 0:
		return 0
	case reach <= 0: // In place of infinity, which JSON does not have.
		return math.MaxFloat64
	}
	return min(off/reach, math.MaxFloat64) // 0 if there is no band
}

// await polls the verifier's report until it covers this number of clients, for at most f.wait.
func (f *loadFlags) await(ctx context.Context, clients uint64) (*verifierReport, error) {
	for end := time.Now().Add(f.wait); ; {
		a, err := f.readAnswer(ctx)
		switch {
		case err != nil:
			return nil, err
		case a.Users == clients && len(a.Estimate) > 0:
			return a, nil
		case a.Users > clients:
			return nil, fmt.Errorf("couldn't compare with the truth: the estimate covers %d clients, but this run "+
				"had only %d",
				a.Users, clients)
		case time.Now().After(end):
			return nil, fmt.Errorf("couldn't compare with the truth: after %v the verifier has an estimate of "+
				"%d of %d clients; a batch has %d", f.wait, a.Users, clients, a.BatchSize)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *comparison) print(w io.Writer) error {
	if c == nil { // There is no estimate yet.
		return nil
	}
	fmt.Fprintf(w, "estimate  of %d clients, %.1f s after the last\n", c.Users, c.Seconds)
	if len(c.Truth) == 1 {
		fmt.Fprintf(w, "          %.6g, and the truth is %.6g\n", c.Estimate[0], c.Truth[0])
	}
	where := "within"
	if !c.InBand {
		where = "outside"
	}
	_, err := fmt.Fprintf(w, "          at most %.1f standard errors off; the truth is %s the 95 %% band\n", c.Worst,
		where)
	return err
}
