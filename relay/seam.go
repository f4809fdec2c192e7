package relay

import "github.com/doona-dp/doona/wire/handover"

// applySeam replaces parts of the relay as a test suite configured in Seam. Call it before Run.
func (r *Relay) applySeam() {
	s := r.cfg.Seam
	if s == nil {
		return
	}
	if s.Store != nil {
		s.Store(r.store, &r.stores)
		r.use(r.stores, r.clock)
	}
	for _, t := range r.Hosted().Order {
		if s.Task != nil {
			open, of := *t.Open, *t.Task
			s.Task(&of)
			open.Task, t.Open = &of, &open
		}
		if s.Transport != nil {
			t.Upstream = handover.NewRequester(t.Sign, s.Transport(r.outgoing))
		}
	}
	if s.Draw != nil {
		r.Hosted().Order[0].Draw = s.Draw
	}
}
