package shufflerclient

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ClientOf returns a client that can make reports, but cannot send them.
func ClientOf(open *taskfile.Open, m protocols.Mechanism, sealer *onion.Sealer) *Client {
	return &Client{open: open, mechanism: m, sealer: sealer}
}

func (c *Client) Draw(values []float64) ([][]task.Message, error) { return c.draw(values) }
