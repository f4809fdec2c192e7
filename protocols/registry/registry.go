// Package registry maps the names of protocols in tasks to their implementations.
package registry

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/realsum"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/task"
)

// protocol is what the registry knows of one.
type protocol struct {
	name      string
	open      func(*task.Task) (protocols.Mechanism, error)
	calibrate func(*task.Task) error
	rule      string // Of new tasks.
}

// krrRule is the accountant's rule for new tasks of randomized response.
const krrRule = "revealed"

var all = []protocol{
	{histogram.Name, histogram.New, histogram.Calibrate, krrRule},
	{realsum.Name, realsum.New, realsum.Calibrate, krrRule},
	{splitmix.Name, splitmix.New, splitmix.Calibrate, splitmix.RuleComponents},
	{correlated.Name, correlated.New, correlated.Calibrate, correlated.RuleMoments},
	{rappor.Name, rappor.New, rappor.Calibrate, rappor.RuleOthers},
	{vectorsum.Name, vectorsum.New, vectorsum.Calibrate, krrRule},
	{vectorgrid.Name, vectorgrid.New, vectorgrid.Calibrate, krrRule},
	{vectormean.Name, vectormean.New, vectormean.Calibrate, vectormean.Rule},
}

func find(t *task.Task) (protocol, error) {
	names := ""
	for _, p := range all {
		if p.name == t.Protocol {
			return p, nil
		}
		names += " " + p.name
	}
	return protocol{}, invalid.Field("protocol", strconv.Quote(t.Protocol), "one of"+names)
}

// Open returns the mechanism of a task, whose parameters it checks, and not its claim:
// [protocols.Mechanism.CheckClaim].
func Open(t *task.Task) (protocols.Mechanism, error) {
	p, err := find(t)
	if err != nil {
		return nil, err
	}
	return p.open(t)
}

// Calibrate sets the parameters and slots of a task from its query, input, claim, batch and rule.
func Calibrate(t *task.Task) error {
	p, err := find(t)
	if err != nil {
		return err
	}
	return p.calibrate(t)
}

// Rule returns the accountant's rule that proves the claims of new tasks of a protocol, or "".
func Rule(name string) string {
	for _, p := range all {
		if p.name == name {
			return p.rule
		}
	}
	return ""
}

// Default returns the protocol for a query when nothing else is asked for.
func Default(query string) string {
	switch query {
	case task.Histogram:
		return histogram.Name
	case task.Vector:
		return vectorsum.Name
	case task.VectorMean:
		return vectormean.Name
	}
	return realsum.Name
}
