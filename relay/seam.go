package relay

import "github.com/doona-dp/doona/wire/handover"

// applySeam changes a relay that does not run yet as a suite configured it.
func (r *Relay) applySeam() {
	s := r.cfg.Seam
	if s == nil {
		return
	}
	if s.Store != nil {
		r.use(s.Store(r.store), r.clock)
	}
	for _, t := range r.hosted().order {
		if s.Task != nil {
			open, of := *t.Open, *t.Task
			s.Task(&of)
			open.Task, t.Open = &of, &open
		}
		if s.Transport != nil {
			t.upstream = handover.NewClient(t.sign, s.Transport(r.outgoing))
		}
	}
	if s.Draw != nil {
		r.hosted().order[0].draw = s.Draw
	}
}
