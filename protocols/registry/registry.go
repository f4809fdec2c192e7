// Package registry holds the one table of protocols. Everything that lists or chooses protocols is made from it.
package registry

import (
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/realsum"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/wire/task"
)

var all = []protocols.Protocol{
	&histogram.Protocol{},
	&realsum.Protocol{},
	&splitmix.Protocol{},
	&correlated.Protocol{},
	&rappor.Protocol{},
	&vectorsum.Protocol{},
	&vectorgrid.Protocol{},
	&vectormean.Protocol{},
	&augmented.Protocol{},
	&strings.Protocol{},
}

// All returns the table.
func All() []protocols.Protocol { return slices.Clone(all) }

// find returns the protocol of a task.
func find(t *task.Task) (protocols.Protocol, error) {
	names := ""
	for _, p := range all {
		if p.ProtocolName() == t.Protocol {
			return p, nil
		}
		names += " " + p.ProtocolName()
	}
	return nil, invalid.Field("protocol", strconv.Quote(t.Protocol), "one of"+names)
}

// Open calls [protocols.Protocol.Open] of the task's protocol. It refuses tasks that no party supports yet:
// [task.Task.CheckSupported].
func Open(t *task.Task) (protocols.Mechanism, error) {
	if err := t.CheckSupported(); err != nil {
		return nil, err
	}
	p, err := find(t)
	if err != nil {
		return nil, err
	}
	if t.Noise != nil && t.Protocol != augmented.Name && t.Protocol != strings.Name {
		return nil, invalid.Field("noise", t.Noise.Kind, "none for protocol "+t.Protocol+": "+augmented.Name+" and "+
			strings.Name+" take it")
	}
	return p.Open(t)
}

// Calibrate calls [protocols.Protocol.Calibrate] of the task's protocol. A task that names no protocol gets the
// default for its query. A task that names no rule gets the protocol's, or the one of the least error.
func Calibrate(t *task.Task) error {
	if t.Protocol == "" {
		name, err := byQuery(t.Query)
		if err != nil {
			return err
		}
		t.Protocol = name
	}
	p, err := find(t)
	if err != nil {
		return err
	}
	if err := t.Claim.Check(); err != nil {
		return err
	}
	if t.Rule == "" {
		t.Rule = p.Row().Rule
	}
	return p.Calibrate(t)
}

// CalibrateRelayNoise calls the function of this name in the [protocols.Row] of the task's protocol. A task without a
// protocol gets the default protocol with noise by relays.
func CalibrateRelayNoise(t *task.Task, d protocols.NoiseOptions) error {
	if t.Protocol == "" {
		if t.Protocol = augmented.Name; t.Query == task.Strings {
			t.Protocol = strings.Name
		}
	}
	p, err := find(t)
	if err != nil {
		return err
	}
	calibrate := p.Row().CalibrateRelayNoise
	if calibrate == nil {
		return invalid.Field("protocol", strconv.Quote(t.Protocol), augmented.Name+" or "+strings.Name+
			", where relays add noise")
	}
	return calibrate(t, d)
}

// byQuery returns the name of the default protocol for a query.
func byQuery(query task.Query) (string, error) {
	queries := ""
	for _, p := range all {
		for _, answered := range p.Row().Default {
			if answered == query {
				return p.ProtocolName(), nil
			}
			queries += " " + string(answered)
		}
	}
	return "", invalid.Field("query", strconv.Quote(string(query)), "one of"+queries)
}
