package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// fenceAfter is how long a relay process may be silent before the others fence it, that is, continue without it. Each
// process announces itself about once a second.
const fenceAfter = 10 * time.Second

// longestGap limits how much of the time between two scans by this process counts as silence of another one: both may
// have been cut off from the database together.
const longestGap = 2 * time.Second

// silence records how long another process has not made a scan.
type silence struct {
	scan   uint64 // number of that process's latest scan
	length time.Duration
}

// membership holds what this process knows about the processes that share its store, and whether it is a member, which
// may hand out batches. It uses no SQL.
type membership struct {
	met atomic.Bool // this process is a member

	mu       sync.Mutex         // guards the rest
	latest   uint64             // number of this process's latest scan
	listened time.Time          // time of that scan
	silent   map[string]silence // the other processes, by the names of their rollback marks
	joining  Joining            // why this process is not a member
}

// Joining says why a process is not a member yet and hands out no batches although there was no state rollback; "" for
// a member.
type Joining string

// The reasons why a relay process is not yet one of the processes that may write to their shared store.
const (
	CatchesUp Joining = "joining: catching up with another process"
	NoMember  Joining = "joining: no member is running: start a process that was not fenced; if there is none, " +
		"end the epochs (relay end-epochs)"
)

// Joining says why this process hands out no batches; "" if it does.
func (h *membership) Joining() Joining {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.joining
}

// remembers returns a [StateRollbackError] if the database has lost a scan that this process knows of, or if another
// process has recorded there that it was rolled back.
func (h *membership) remembers(peers []peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := latest(peers); at < h.latest {
		return &StateRollbackError{storeOlderThanSecret, fmt.Sprintf("%d of at least %d scans", at, h.latest)}
	}
	if slices.ContainsFunc(peers, func(p peer) bool { return p.standing == halted }) {
		return foundByOther()
	}
	return nil
}

// stand returns a process's new standing after its scan with number at. caught is the scan at which the joining process
// had recorded all batches in its rollback marks; 0 if it has not. The second result is the new caught.
//
//	it was                the others                            it is
//	not there             none                                  a member
//	not there             some                                  joining
//	a member                                                    a member
//	fenced                                                      joining
//	joining                                                     joining, caught up
//	joining, caught up    a member has begun a scan since       a member
//	joining, caught up    no member has                         joining, caught up
func stand(mine standing, others []peer, at, caught uint64) (standing, uint64) {
	since := func(p peer) bool { return p.standing == member && p.begun >= caught }
	switch {
	case mine == member, mine == unknown && len(others) == 0:
		return member, 0
	case mine != joining:
		return joining, 0
	case caught == 0:
		return joining, at
	case slices.ContainsFunc(others, since):
		return member, 0
	}
	return joining, caught
}

// listen records this process's standing and which other processes made a scan since its previous scan.
func (h *membership) listen(me peer, others []peer, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gap := min(at.Sub(h.listened), longestGap)
	before := h.silent
	h.latest, h.listened, h.silent, h.joining = me.scan, at, map[string]silence{}, NoMember
	for _, p := range others {
		s := silence{scan: p.scan}
		if last, known := before[p.file]; known && last.scan == p.scan {
			s.length = last.length + gap
		}
		h.silent[p.file] = s
		if p.standing == member && s.length < fenceAfter {
			h.joining = CatchesUp
		}
	}
	if me.standing == member {
		h.joining = ""
	}
	h.met.Store(me.standing == member)
}

// isSilent reports whether a process made no scan for fenceAfter, up to now.
func (h *membership) isSilent(p peer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, known := h.silent[p.file]
	return known && s.scan == p.scan && s.length >= fenceAfter
}

// forget drops everything known about other processes.
func (h *membership) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest, h.silent = 0, nil
}
