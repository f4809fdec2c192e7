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
	"github.com/doona-dp/doona/wire/task"
)

var all = []struct {
	protocol string
	open     func(*task.Task) (protocols.Mechanism, error)
}{
	{histogram.Name, histogram.New},
	{realsum.Name, realsum.New},
	{splitmix.Name, splitmix.New},
	{correlated.Name, correlated.New},
	{rappor.Name, rappor.New},
	{vectorsum.Name, vectorsum.New},
	{vectorgrid.Name, vectorgrid.New},
	{vectormean.Name, vectormean.New},
}

// Open returns the mechanism of a task, whose parameters it checks, and not its claim:
// [protocols.Mechanism.CheckClaim].
func Open(t *task.Task) (protocols.Mechanism, error) {
	names := ""
	for _, p := range all {
		if p.protocol == t.Protocol {
			return p.open(t)
		}
		names += " " + p.protocol
	}
	return nil, invalid.Field("protocol", strconv.Quote(t.Protocol), "one of"+names)
}
