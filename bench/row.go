package main

import (
	"context"
	"slices"
)

// Row is one measurement. Scripts read its JSON form: do not change the fields.
type Row struct {
	Name       string   `json:"name"`
	Unit       string   `json:"unit"`
	Better     string   `json:"better"`      // "lower" or "higher".
	Ours       *float64 `json:"ours"`        // Median of Runs.
	Peer       *float64 `json:"peer"`        // Median of the peer's runs; nil: no peer was measured.
	PeerName   *string  `json:"peer_name"`   //
	PeerRatio  *float64 `json:"peer_ratio"`  // Above 1: ours is better than the peer.
	Limit      *float64 `json:"limit"`       // Best possible value.
	LimitName  *string  `json:"limit_name"`  //
	LimitRatio *float64 `json:"limit_ratio"` // Share of the limit that ours reaches; above 1 only by measurement error.
	Runs       int      `json:"runs"`
	Min        *float64 `json:"min"`
	Max        *float64 `json:"max"`
	Measured   string   `json:"measured,omitempty"` // Date, commit, load average and processor of the run.
}

// The values of Row.Better.
const (
	lower  = "lower"
	higher = "higher"
)

// newRow returns a row with the median, least and greatest of the runs. Without runs these are nil.
func newRow(name, unit, better string, runs ...float64) Row {
	r := Row{Name: name, Unit: unit, Better: better, Runs: len(runs)}
	if len(runs) > 0 {
		sorted := slices.Sorted(slices.Values(runs))
		r.Ours, r.Min, r.Max = ptr(median(runs)), ptr(sorted[0]), ptr(sorted[len(sorted)-1])
	}
	return r
}

// against adds the median of a peer's runs. Without runs it returns the row unchanged.
func (r Row) against(name string, runs ...float64) Row {
	if len(runs) > 0 && r.Ours != nil {
		r.Peer, r.PeerName = ptr(median(runs)), &name
		r.PeerRatio = r.advantage(*r.Ours, *r.Peer)
	}
	return r
}

// within adds a limit: the best possible value. A ratio above 1 means that the runs vary, or that the limit is wrong.
func (r Row) within(name string, limit float64) Row {
	if r.Ours != nil {
		r.Limit, r.LimitName = &limit, &name
		r.LimitRatio = r.advantage(*r.Ours, limit)
	}
	return r
}

// advantage returns a ratio that is above 1 if a is better than b. It returns nil if either is 0.
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

// Group is a set of rows that Run measures together. The flag --rows selects it by Names, all names Run may return.
type Group struct {
	Names []string
	Run   func(context.Context, *Setup) ([]Row, error)
	Long  bool // Takes minutes: runs only with --full, or if --rows matches one of its names.
}
