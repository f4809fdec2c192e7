// Package registry holds the one table of protocols. Code that lists or chooses protocols uses this table.
package registry

import (
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/wire/task"
)

// All returns all protocols, in the order of the table.
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
	return nil, invalid.Field("protocol", invalid.Quote(t.Protocol), "one of"+names)
}

// Open returns the mechanism of a task, from the Open method of the task's protocol ([protocols.Protocol.Open]). It
// refuses a task with features that no party supports yet ([task.Task.CheckSupported]).
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

// Calibrate sets the parameters of a task, by the Calibrate method of the task's protocol
// ([protocols.Protocol.Calibrate]). If the task names no protocol, it gets the default for its query. If it names no
// rule, it gets the protocol's default rule; if the protocol has no default, it gets the rule of least error.
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

// CalibrateRelayNoise sets the parameters of a task whose relays add the noise, by the function CalibrateRelayNoise in
// the protocol's [protocols.Row]. If the task names no protocol, it gets the default one with relay noise.
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
		return invalid.Field("protocol", invalid.Quote(t.Protocol), augmented.Name+" or "+strings.Name+
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
	return "", invalid.Field("query", invalid.Quote(string(query)), "one of"+queries)
}
