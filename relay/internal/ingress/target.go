package ingress

import (
	"errors"
	"net/http"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// target is what a request reports to: a task, or a set. The task decides about the report: origin, time, quota or
// token, replay. A set's first table decides for the set.
type target struct {
	*tasks.Hosted
	set *tasks.HostedSet // nil for a task
}

// findTarget returns the target that the path of a request names, if this is its first relay.
type findTarget func(req *http.Request) (target, error)

// reportTask is the findTarget of single reports.
func (in *Ingress) reportTask(req *http.Request) (target, error) {
	all := in.Hosted()
	s, err := service.PathTask(req, all.ByID)
	if err != nil {
		return target{}, err
	}
	if all.SetWith(s.ID) != nil {
		return target{}, problem.New(problem.SetOnly, "")
	}
	return target{s, nil}, checkFirst(s)
}

// reportSet is the findTarget of sets' submissions.
func (in *Ingress) reportSet(req *http.Request) (target, error) {
	id, err := service.PathKey[task.ID](req, "set")
	set := in.Hosted().SetByID(id)
	if err != nil || set == nil {
		return target{}, problem.New(problem.UnknownTask, "")
	}
	return target{set.First(), set}, checkFirst(set.First())
}

func checkFirst(s *tasks.Hosted) error {
	if s.Hop != 0 {
		return problem.New(problem.NotIngress, "send reports to %s", s.Relays[0].URL)
	}
	return nil
}

// targetEpoch is the epoch that a report is for: of a set, an epoch of its first table.
type targetEpoch struct {
	tasks.Epoch
	set *tasks.HostedSet // nil for a task
}

// maxBody returns the size of the largest body, in bytes. All submissions of a set have one size.
func (e targetEpoch) maxBody() int64 {
	if e.set != nil {
		return int64(e.set.BodySize())
	}
	return int64(e.Layout.MaxBody())
}

// open decrypts a body. The envelope of a set's submission has one lane for each table.
func (e targetEpoch) open(body []byte) (envelope *onion.Envelope, err error) {
	var opener *onion.Opener
	if e.set == nil {
		if opener, err = e.Opener(); err == nil {
			envelope, err = opener.OpenEnvelope(body)
		}
	} else if opener, err = e.SetOpener(e.set); err == nil {
		envelope, err = opener.OpenSet(body, e.set.SlotLayouts)
	}
	switch {
	case errors.Is(err, keyfile.ErrErased): // perhaps meanwhile
		return nil, problem.New(problem.EpochClosed, "")
	case errors.Is(err, onion.ErrOpen):
		return nil, problem.New(problem.DoesNotOpen, "sealed to another key, task or epoch, or damaged")
	case err != nil && opener != nil:
		return nil, problem.New(problem.Malformed, "%v", err)
	}
	return envelope, err
}

// setSlots returns the slot of a set's first table, and those of the other tables on the day.
func (in *Ingress) setSlots(e targetEpoch, slots onion.Lanes) (first onion.Lanes,
	others []store.TableSlot) {
	all := in.Hosted().ByID
	for i, t := range e.set.Tasks[1:] {
		number, open := e.set.At(i+1, e.Number)
		id := store.EpochID{Task: e.set.Tables[i+1].Task, Epoch: number}
		hosted := all[id.Task]
		others = append(others, store.TableSlot{ID: id, Size: t.Batch.Size, Batches: t.MostBatches(),
			Open: open && hosted != nil && !hosted.Epoch(number).RolledBack(), Slot: slots[i+1][0]})
	}
	return slots[:1], others
}

// The reasons in tallies for a slot of a set's submission that was not stored.
const (
	SlotNotOpen = "set-slot-not-open" // The table has no epoch on the day: the slot is a cover.
	SlotDropped = "set-slot-dropped"  // The table's epoch takes no more, or all its batches are full.
)

// tallyDropped counts the slots of a stored submission that its tables did not take. A slot for a table that is not
// open counts in the day's epoch: the table's last epoch may be over, and its tallies would reach the disk at once.
func (in *Ingress) tallyDropped(sub *store.Submission) {
	if sub.Verdict != store.Accepted {
		return
	}
	for _, o := range sub.Others {
		switch {
		case !o.Open:
			in.monitor.Tally(sub.ID, SlotNotOpen, 1)
		case !o.Stored:
			in.monitor.Tally(o.ID, SlotDropped, 1)
		}
	}
}
