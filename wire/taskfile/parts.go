package taskfile

import (
	"encoding/hex"
	"fmt"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

func (d *document) formatClaim(c task.Claim) {
	d.Claim.Epsilon, d.Claim.Delta = c.Epsilon.String(), c.Delta.String()
	if !c.Total.IsZero() {
		d.Claim.Total = &total{c.Total.Epsilon.String(), c.Total.Delta.String()}
	}
	if c.Assumption != task.MinHonest {
		d.Claim.Assumption = c.Assumption.String()
	}
}

func (d *document) claim() (c task.Claim, err error) {
	c = task.NewClaim(d.Claim.Epsilon, d.Claim.Delta)
	if total := d.Claim.Total; total != nil {
		if c.SetTotal(total.Epsilon, total.Delta); c.Total.IsZero() {
			return c, invalid.Field("claim.total", "{}", "epsilon and delta, or no total")
		}
	}
	if d.Claim.Assumption != "" {
		err = c.Assumption.Parse(d.Claim.Assumption)
	}
	return c, err
}

func formatStream(s *task.StreamPosition) *streamForm {
	if s == nil {
		return nil
	}
	out := &streamForm{Name: s.Name, Position: s.Position, Allow: append([]string{}, s.Allow...)}
	if s.Position > 0 {
		out.Before = s.Before.String()
	}
	for _, rotation := range s.Rotations {
		out.Rotations = append(out.Rotations, FormatRotation(rotation))
	}
	return out
}

func (s *streamForm) parse() (*task.StreamPosition, error) {
	if s == nil {
		return nil, nil
	}
	out := &task.StreamPosition{Name: s.Name, Position: s.Position, Allow: s.Allow}
	if len(s.Allow) == 0 {
		out.Allow = nil
	}
	for _, r := range s.Rotations {
		rotation, err := r.Parse()
		if err != nil {
			return nil, err
		}
		out.Rotations = append(out.Rotations, rotation)
	}
	if s.Before == "" {
		return out, nil
	}
	raw, err := hex.DecodeString(s.Before)
	if err != nil || len(raw) != len(out.Before) || hex.EncodeToString(raw) != s.Before {
		return nil, invalid.Field("stream.before", fmt.Sprintf("%q", s.Before), "64 lower-case hexadecimal digits")
	}
	out.Before = task.ID(raw)
	return out, nil
}

func formatNoise(n *task.Noise) *noise {
	if n == nil {
		return nil
	}
	out := &noise{Kind: n.Kind, Cells: n.Cells, Batches: n.Batches, Tables: n.Tables, Total: n.Total, Rest: n.Rest,
		Pool: n.Pool}
	for _, run := range n.Which {
		out.Which = append(out.Which, []uint64{run.Count, run.Table})
	}
	if n.Tilt != nil {
		out.Tilt = &tilt{n.Tilt.Centre, n.Tilt.Zero, n.Tilt.Weights, n.Tilt.Factors}
	}
	return out
}

func (n *noise) parse() (*task.Noise, error) {
	if n == nil {
		return nil, nil
	}
	out := &task.Noise{Kind: n.Kind, Cells: n.Cells, Batches: n.Batches, Tables: n.Tables, Total: n.Total, Rest: n.Rest,
		Pool: n.Pool}
	for i, run := range n.Which {
		if len(run) != 2 {
			return nil, invalid.Field("noise.which", fmt.Sprintf("run %d of %d numbers", i, len(run)), "[count, table]")
		}
		out.Which = append(out.Which, task.Run{Count: run[0], Table: run[1]})
	}
	if n.Tilt != nil {
		out.Tilt = &task.Tilt{Centre: n.Tilt.Centre, Zero: n.Tilt.Zero, Weights: n.Tilt.Weights,
			Factors: n.Tilt.Factors}
	}
	return out, nil
}
