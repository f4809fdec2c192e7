package planner

import (
	"cmp"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Example returns the query of a protocol's example. It has δ = 10⁻⁶, the given share of honest clients, and ε = 1
// unless the example sets another ε. Histograms are over labels. The vectormean query clips.
func Example(protocol string, c protocols.Case, honest float64) Query {
	info := c.Query.Info()
	q := Query{
		Name: "example", Query: c.Query, Protocol: protocol,
		Hi: cmp.Or(c.Hi, 1), Bins: c.Bins, Labels: info.Shape == task.PerBin, Dim: c.Dim, Length: c.Length,
		Clip:   info.Ball(),
		Params: Params{}, Padding: c.Padding, Lanes: c.Lanes,
		Batch: c.Users, Honest: honest, Epsilon: cmp.Or(c.Epsilon, 1), Delta: 1e-6,
	}
	for _, p := range c.Params {
		q.Params[p.Key] = uint64(p.Value.Num)
	}
	return q
}
