package relay

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"

	"github.com/doona-dp/doona/internal/service"
)

// Status is how far a relay has come: what `relay status` prints.
type Status struct {
	Tasks []TaskStatus `json:"tasks"`
}

// TaskStatus is the status of one task.
type TaskStatus struct {
	ID       string        `json:"id"`   // lower-case hex
	Name     string        `json:"name"` // as the task says
	Hop      int           `json:"hop"`
	Epochs   []EpochStatus `json:"epochs"` // those that have begun and seen anything
	Findings []Finding     `json:"findings"`
}

// EpochStatus is the status of one epoch. The number of reports in an open batch is not in it:
// watching that would tell when each came.
type EpochStatus struct {
	Epoch     uint64 `json:"epoch"`
	State     string `json:"state"`     // open, closed, complete, erased or expired
	Batches   uint64 `json:"batches"`   // made so far, destroyed ones too
	Confirmed uint64 `json:"confirmed"` // of them, those the next hop has

	// Refused counts reports and slots by reason, each rounded up to a power of two, and only when
	// the epoch is erased: before, a count that moves would tell when a report came and how it fared.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Finding is something that was wrong with a batch of another relay.
type Finding struct {
	Epoch  uint64 `json:"epoch"`
	Batch  uint64 `json:"batch"`
	Reason string `json:"reason"`
}

var stateNames = [...]string{"open", "closed", "complete", "erased", "expired"}

// Status reads the store, also beside a running relay.
func (r *Relay) Status(ctx context.Context) (*Status, error) {
	var all []progress
	var findings []finding
	refused := map[epochID]map[string]uint64{}
	if r.store != nil {
		var err error
		if all, err = r.store.progress(ctx); err != nil {
			return nil, err
		}
		if findings, err = r.store.findings(ctx); err != nil {
			return nil, err
		}
		if refused, err = r.refused(ctx, all); err != nil {
			return nil, err
		}
	}
	out := &Status{Tasks: []TaskStatus{}}
	for _, s := range r.order {
		t := TaskStatus{ID: hex.EncodeToString(s.ID[:]), Name: s.Name, Hop: s.hop, Epochs: []EpochStatus{}, Findings: []Finding{}}
		for _, p := range all {
			if p.id.task != s.ID {
				continue
			}
			sealed := p.next - uint64(len(p.open))
			t.Epochs = append(t.Epochs, EpochStatus{p.id.epoch, stateNames[p.state], sealed, sealed - uint64(len(p.held)), refused[p.id]})
		}
		slices.SortFunc(t.Epochs, func(a, b EpochStatus) int { return int(a.Epoch) - int(b.Epoch) })
		for _, f := range findings {
			if f.id.task == s.ID {
				t.Findings = append(t.Findings, Finding{f.id.epoch, f.seq, f.reason})
			}
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out, nil
}

// refused returns the coarsened tallies of the epochs that are erased.
func (r *Relay) refused(ctx context.Context, all []progress) (map[epochID]map[string]uint64, error) {
	tallies, err := r.store.tallies(ctx)
	if err != nil {
		return nil, err
	}
	out := map[epochID]map[string]uint64{}
	for _, p := range all {
		if p.state >= stateErased {
			out[p.id] = map[string]uint64{}
		}
	}
	for _, t := range tallies {
		if of := out[t.id]; of != nil {
			of[t.reason] = coarse(t.refused)
		}
	}
	return out, nil
}

// AdminHandler returns the operator's HTTP interface: /healthz, /readyz, /metrics and /status.
// It must not be public.
func (r *Relay) AdminHandler() http.Handler {
	admin := service.Admin{
		Ready:   r.isReady,
		Status:  func(ctx context.Context) (any, error) { return r.Status(ctx) },
		Look:    func(ctx context.Context) { r.metrics.look(ctx, r) },
		Metrics: r.metrics.Metrics,
	}
	return admin.Handler(r.cfg.Log)
}

// isReady says whether reports are taken and batches handed out: not before the start, not while
// draining, not without the store, and not where it cannot be written to. That is tried again here, as
// nobody sends reports to a relay that is not ready.
func (r *Relay) isReady(ctx context.Context) bool {
	_, err := r.store.progress(ctx)
	if err == nil && r.failing.Load() {
		if err = r.store.probe(ctx); err == nil {
			r.failing.Store(false)
		}
	}
	return err == nil && r.ready.Load()
}
