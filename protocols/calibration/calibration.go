// Package calibration chooses the parameters of new tasks, for every protocol. It stands apart
// from package registry because clients only check parameters: what finds them would be dead
// weight in doona.wasm.
package calibration

import (
	"cmp"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/realsum"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/wire/task"
)

var all = []struct {
	protocol  string
	calibrate func(*task.Task) error
	rule      string // Of new tasks; "" where calibrate chooses it.
}{
	{histogram.Name, histogram.Calibrate, ""},
	{realsum.Name, realsum.Calibrate, ""},
	{splitmix.Name, splitmix.Calibrate, splitmix.RuleComponents},
	{correlated.Name, correlated.Calibrate, correlated.RuleMoments},
	{rappor.Name, rappor.Calibrate, rappor.RuleOthers},
	{vectorsum.Name, vectorsum.Calibrate, string(accountant.Exact)},
	{vectorgrid.Name, vectorgrid.Calibrate, string(accountant.Exact)},
	{vectormean.Name, vectormean.Calibrate, vectormean.Rule},
}

// Calibrate sets the parameters and slots of a task from its query, input, claim, batch and rule. A
// rule that is not set becomes the one that gives the least error.
func Calibrate(t *task.Task) error {
	names := ""
	for _, p := range all {
		if p.protocol == t.Protocol {
			t.Rule = cmp.Or(t.Rule, p.rule)
			return p.calibrate(t)
		}
		names += " " + p.protocol
	}
	return invalid.Field("protocol", strconv.Quote(t.Protocol), "one of"+names)
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
