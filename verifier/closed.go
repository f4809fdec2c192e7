package verifier

import (
	"errors"
	"fmt"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

const epochLabel = "doona-epoch"

// closedEpoch is the stored form of a complete epoch.
type closedEpoch struct {
	Label     string
	Version   uint64
	TaskID    []byte
	Epoch     uint64
	Batches   uint64 // Number of batches, from the signed end.
	Aggregate []byte // See packCounters.
	Counts    Counts
	Hops      []HopCounts
	Missing   []uint64 // Lost slots of released batches, per hop.
	Exposed   uint64   // 1 if clients' messages reached the verifier, else 0.
	Findings  []finding.Note
	Evidence  []finding.Evidence
}

// EpochBytes returns the msgpack form of a complete epoch. It returns an error if the epoch is not complete.
func (v *Verifier) EpochBytes(of uint64) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.mutableEpoch(of)
	if !e.closed {
		return nil, fmt.Errorf("couldn't store epoch %d: it is not complete", of)
	}
	c := closedEpoch{Label: epochLabel, Version: task.Version, TaskID: v.open.ID[:], Epoch: of, Batches: e.batches,
		Aggregate: packCounters(e.total.aggregate), Counts: e.total.counts, Hops: e.total.hops,
		Missing: e.total.missing, Findings: e.total.findings.notes(), Evidence: []finding.Evidence{}}
	if e.exposed {
		c.Exposed = 1
	}
	if one := e.total.findings[finding.Equivocation]; one != nil {
		c.Evidence = one.evidence
	}
	return codec.Marshal(&c)
}

// RestoreEpoch replaces an epoch by the complete epoch in a msgpack form.
func (v *Verifier) RestoreEpoch(of uint64, raw []byte) error {
	var c closedEpoch
	if err := codec.Unmarshal(raw, &c); err != nil {
		return err
	}
	if c.Label != epochLabel || c.Version != task.Version || string(c.TaskID) != string(v.open.ID[:]) ||
		c.Epoch != of || of >= v.open.Epochs.Count || len(c.Hops) != v.open.VerifierHop() ||
		len(c.Missing) != len(c.Hops)+1 {
		return errors.New("couldn't read an epoch: it is not the epoch that its name says")
	}
	t := &total{aggregate: v.mechanism.Aggregate(), counts: c.Counts, hops: c.Hops, missing: c.Missing,
		findings: findings{}}
	if err := unpackCounters(t.aggregate, c.Aggregate); err != nil {
		return err
	}
	for _, n := range c.Findings {
		t.findings.add(finding.Name(n.Name), n.Count, Position{n.Epoch, n.Seq, n.Text})
	}
	if one := t.findings[finding.Equivocation]; one != nil {
		one.evidence = c.Evidence
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	*v.mutableEpoch(of) = epoch{closed: true, batches: c.Batches, exposed: c.Exposed == 1, total: t}
	return nil
}
