package main

import (
	"context"
	"slices"
)

// Row is one measurement. Its JSON form is a contract: scripts read it.
type Row struct {
	Name       string   `json:"name"`
	Unit       string   `json:"unit"`
	Better     string   `json:"better"`      // "lower" or "higher".
	Ours       *float64 `json:"ours"`        // Median of Runs.
	Peer       *float64 `json:"peer"`        // The same of a peer, measured in this run.
	PeerName   *string  `json:"peer_name"`   //
	PeerRatio  *float64 `json:"peer_ratio"`  // Above 1: ours is better.
	Limit      *float64 `json:"limit"`       // Best possible value.
	LimitName  *string  `json:"limit_name"`  //
	LimitRatio *float64 `json:"limit_ratio"` // Efficiency; above 1 only where the runs vary.
	Runs       int      `json:"runs"`
	Min        *float64 `json:"min"`
	Max        *float64 `json:"max"`
	Measured   string   `json:"measured,omitempty"` // When, at which commit, beside which load and on what.
}

// The values of Row.Better.
const (
	lower  = "lower"
	higher = "higher"
)

// newRow returns the row of one or more runs.
func newRow(name, unit, better string, runs ...float64) Row {
	r := Row{Name: name, Unit: unit, Better: better, Runs: len(runs)}
	if len(runs) > 0 {
		sorted := slices.Sorted(slices.Values(runs))
		r.Ours, r.Min, r.Max = ptr(median(runs)), ptr(sorted[0]), ptr(sorted[len(sorted)-1])
	}
	return r
}

// against adds a peer's runs; none leave the row without one.
func (r Row) against(name string, runs ...float64) Row {
	if len(runs) > 0 && r.Ours != nil {
		r.Peer, r.PeerName = ptr(median(runs)), &name
		r.PeerRatio = r.advantage(*r.Ours, *r.Peer)
	}
	return r
}

// within adds what cannot be beaten. A ratio above 1 says that the runs vary, or that the limit is none.
func (r Row) within(name string, limit float64) Row {
	if r.Ours != nil {
		r.Limit, r.LimitName = &limit, &name
		r.LimitRatio = r.advantage(*r.Ours, limit)
	}
	return r
}

// advantage is above 1 where a is better than b, and nil where either is 0: no ratio says how much.
func (r Row) advantage(a, b float64) *float64 {
	if a == 0 || b == 0 {
		return nil
	}
	if r.Better == lower {
		return ptr(b / a)
	}
	return ptr(a / b)
}

func median(runs []float64) float64 {
	sorted := slices.Sorted(slices.Values(runs))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func ptr[T any](v T) *T { return &v }

// Group is a set of rows that are measured together: the names it may return, by which --rows
// chooses it, and how.
type Group struct {
	Names []string
	Run   func(context.Context, *Setup) ([]Row, error)
	Long  bool // Takes minutes: only with --full, or where --rows names some of it.
}
