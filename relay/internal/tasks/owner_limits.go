package tasks

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/taskfile"
)

// OwnerLimits limit what all tasks of an approved owner together use of the relay. Their fields are those of
// relay.OwnerConfig; 0 means no limit.
type OwnerLimits struct {
	ReportsPerSecond int
	Bytes            int64
	Dummies          uint64
}

// The names of the limits on an owner's reports.
const (
	LimitReports = "reports_per_second"
	LimitBytes   = "bytes"
)

const (
	mostReportsPerSecond = 1_000_000
	mostLimitedDummies   = 1 << 32
)

// check returns an error that names a limit out of range.
func (l OwnerLimits) check() error {
	switch {
	case l.ReportsPerSecond < 0 || l.ReportsPerSecond > mostReportsPerSecond:
		return invalid.Field("owners.reports_per_second", strconv.Itoa(l.ReportsPerSecond),
			fmt.Sprintf("1 to %d, or 0 for no limit", mostReportsPerSecond))
	case l.Dummies > mostLimitedDummies:
		return invalid.Field("owners.dummies", strconv.FormatUint(l.Dummies, 10),
			fmt.Sprintf("1 to %d, or 0 for no limit", uint64(mostLimitedDummies)))
	}
	return nil
}

// errDummies means that a task asks for more dummies than the operator allows its owner.
var errDummies = errors.New("the task has too many dummies")

// checkDummies returns an error if a task asks the relay for more dummies in a batch than the operator allows.
func (l OwnerLimits) checkDummies(open *taskfile.Open) error {
	if l.Dummies == 0 || open.Noise == nil {
		return nil
	}
	if _, most := open.Noise.Support(); most > l.Dummies {
		return fmt.Errorf("%w: up to %d in a batch, limit %d", errDummies, most, l.Dummies)
	}
	return nil
}

// checkDummies returns an error if a new task of the owner asks for too many dummies.
func (o *owner) checkDummies(open *taskfile.Open) error { return o.source.Load().checkDummies(open) }

// ownerUse is what an owner's tasks use now.
type ownerUse struct {
	pending atomic.Int64 // bytes of reports and batches on disk, from the last scan of the store and the reports since
	limited atomic.Int64 // Unix time of the last report refused by a limit

	mu      sync.Mutex // guards the rest
	allowed float64    // reports that may come now
	at      time.Time  // when allowed was true
}

// takeReport reports whether one more report may come now. The reports of a second may come all at once.
func (u *ownerUse) takeReport(perSecond int, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	most := float64(perSecond)
	u.allowed = min(most, u.allowed+now.Sub(u.at).Seconds()*most)
	u.at = now
	if u.allowed < 1 {
		return false
	}
	u.allowed--
	return true
}

// TakeReport returns "", or the limit of the task's owner that forbids one more report now. It counts the report.
func (s *Hosted) TakeReport() (limit string) {
	if s.owner == nil {
		return ""
	}
	limits, use := s.owner.source.Load().OwnerLimits, &s.owner.use
	switch now := time.Now(); {
	case limits.Bytes > 0 && use.pending.Load()+s.reportDisk() > limits.Bytes:
		limit = LimitBytes
	case limits.ReportsPerSecond > 0 && !use.takeReport(limits.ReportsPerSecond, now):
		limit = LimitReports
	default:
		return ""
	}
	use.limited.Store(time.Now().Unix())
	return limit
}

// Stored records that a report of the task was stored.
func (s *Hosted) Stored() {
	if s.owner != nil {
		s.owner.use.pending.Add(s.reportDisk())
	}
}

// reportDisk returns about how many bytes a report takes on disk at the first relay until its batch is sealed.
func (s *Hosted) reportDisk() int64 {
	const replaySet = 20
	return int64(s.Slots.Lanes*s.Slots.PerLane)*int64(s.Layout.SlotSize(1)) + replaySet
}

// countPending updates how many bytes the reports and unconfirmed batches of each owner take.
func (r *Registry) countPending(all []store.Progress) {
	sums := map[*owner]int64{}
	for _, p := range all {
		s := r.Hosted().ByID[p.ID.Task]
		if s == nil || s.owner == nil {
			continue
		}
		for _, b := range p.Open {
			sums[s.owner] += int64(b.Submissions) * s.reportDisk()
		}
		sums[s.owner] += int64(len(p.Held)) * handover.MaxBatch(s.Task, s.Layout, s.Hop)
	}
	for _, o := range r.approved() {
		o.use.pending.Store(sums[o])
	}
}

// limitedFor is how long the status says that an owner is over a limit, after a report was refused.
const limitedFor = 10 * time.Minute

// isLimited reports whether a limit has refused a report of the owner lately.
func (u *ownerUse) isLimited() bool { return time.Since(time.Unix(u.limited.Load(), 0)) < limitedFor }
