package relaytest

import (
	"context"
	"net/http"
	"testing"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
)

// fileName returns the file name, without extension, of the cascade's task.
func (c *Cascade) fileName() string {
	tasks := max(c.options.Tasks, 1)
	if c.index < tasks {
		return c.fileName()
	}
	return c.options.Set.Name + "-" + c.OpenSet().Tables[c.index-tasks].Name
}

// OpenSet returns the cascade's set.
func (c *Cascade) OpenSet() *tableset.Open { return c.Sets[0] }

// Table returns the same cascade with methods for the i-th table of its set.
func (c *Cascade) Table(t testing.TB, i int) *Cascade {
	t.Helper()
	return c.Other(t, max(c.options.Tasks, 1)+i)
}

// SetSealer returns a sealer for the set's submissions.
func (c *Cascade) SetSealer(t testing.TB) *onion.SetSealer {
	t.Helper()
	var tables []*onion.Sealer
	for i := range c.OpenSet().Tables {
		tables = append(tables, c.Table(t, i).sealer)
	}
	return onion.NewSetSealer(c.OpenSet().ID, tables)
}

// PostSet sends a submission of the set to the first relay from a client's IP address.
func (c *Cascade) PostSet(ctx context.Context, day uint64, body []byte, client string) error {
	return c.postTo(ctx, c.atTwin(c.OpenSet().ReportsURL(day)), body, http.Header{"X-Forwarded-For": {client}})
}
