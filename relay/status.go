package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/ingress"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Status is the state of a relay, as `relay status` prints it.
type Status struct {
	// StateRollback describes a state rollback and its extent. If it is set, the relay has stopped.
	StateRollback string `json:"state_rollback,omitempty"`

	// Joining says why this process hands out no batch yet. It is set only if several processes share the store.
	Joining string `json:"joining,omitempty"`

	// Full says which disk is full, as long as the space reserved for erasing on that disk is in use or incomplete.
	Full string `json:"full,omitempty"`

	// Unscrubbed says why the store's log still holds deleted rows and the order of writes. Only a running relay knows
	// it.
	Unscrubbed string `json:"unscrubbed,omitempty"`

	// Refusing lists the tasks whose reports are refused now, although the relay works. Only a running relay knows it.
	Refusing []Refusal `json:"refusing,omitempty"`

	// Unread says why the tasks and owners are missing: mostly, the database does not answer.
	Unread string `json:"unread,omitempty"`

	Tasks []TaskStatus `json:"tasks"`

	Owners []OwnerStatus `json:"owners,omitempty"` // the approved owners

	Sets []SetStatus `json:"sets,omitempty"` // by root and position

	// Reload is set once a running relay has read its configuration again.
	Reload *ReloadStatus `json:"reload,omitempty"`
}

// newStatus returns a status without tasks and owners. back is a detected state rollback, or nil.
func newStatus(back *store.StateRollbackError) *Status {
	out := &Status{Tasks: []TaskStatus{}}
	if back != nil {
		out.StateRollback = fmt.Sprintf("%s: %s", back.Cause, back.Detail)
	}
	return out
}

// Err returns an error if the tasks and owners are missing.
func (s *Status) Err() error {
	if s.Unread == "" {
		return nil
	}
	return fmt.Errorf("couldn't read the tasks and owners: %s", s.Unread)
}

// OwnerStatus is the task limit of an approved owner and how much the owner uses of it and of the relay.
type OwnerStatus struct {
	Owner     string `json:"owner"`
	Folder    string `json:"folder"` // last part of its path
	TaskLimit int    `json:"task_limit"`
	Tasks     int    `json:"tasks"`               // those that use a task slot; a stream counts as one
	Withdrawn int    `json:"withdrawn,omitempty"` // tasks that the owner has withdrawn and the relay still has
	Asked     int    `json:"asked"`               // key lists made for the owner that wait for their task
	Suspended bool   `json:"suspended,omitempty"`

	// The limits in relay.yaml, 0 for none. Limited says that one of them has refused reports in the last ten minutes;
	// only a running relay knows it. How near an owner is to a limit is not shown: it would reveal when a report came.
	ReportsPerSecond int    `json:"reports_per_second,omitempty"`
	Bytes            int64  `json:"bytes,omitempty"`
	Dummies          uint64 `json:"dummies,omitempty"`
	Limited          bool   `json:"limited,omitempty"`

	// Batches and Confirmed sum those of EpochStatus over the owner's tasks that the relay serves. Reports is at most
	// how many reports the confirmed batches hold: the batch size of the task for each.
	Batches   uint64 `json:"batches"`
	Confirmed uint64 `json:"confirmed"`
	Reports   uint64 `json:"reports"`
}

// Short returns the start of the owner's key after "ed25519:", as in metrics.
func (o OwnerStatus) Short() string { return tasks.ShortKey(o.Owner) }

// String describes the status in words.
func (o OwnerStatus) String() string {
	further := ""
	if o.Withdrawn > 0 {
		further = fmt.Sprintf(", %d withdrawn", o.Withdrawn)
	}
	for _, limit := range o.limits() {
		further += ", at most " + limit
	}
	if o.Suspended {
		further += ", suspended"
	}
	if o.Limited {
		further += ", over a limit: the relay refuses reports"
	}
	return fmt.Sprintf("owner %s: %d tasks and %d waiting key lists, limit %d%s", o.Owner, o.Tasks, o.Asked,
		o.TaskLimit, further)
}

// limits describes the limits on reports, disk space and dummies in words.
func (o OwnerStatus) limits() (all []string) {
	if o.ReportsPerSecond > 0 {
		all = append(all, fmt.Sprint(o.ReportsPerSecond, " reports per second"))
	}
	if o.Bytes > 0 {
		all = append(all, Size(o.Bytes).String()+" on disk")
	}
	if o.Dummies > 0 {
		all = append(all, fmt.Sprint(o.Dummies, " dummies for a batch"))
	}
	return all
}

// SetStatus is the status of one set.
type SetStatus struct {
	ID       string        `json:"id"`       // lower-case hex
	Name     string        `json:"name"`     // the name in the set
	Position uint64        `json:"position"` // 0 for a new set, otherwise of a renewal
	Tables   []TableStatus `json:"tables"`

	// Missing lists the tables that the relay does not have: the set is not served until the owner hands it over again.
	Missing []string `json:"missing,omitempty"`

	// Unpermuted says why the open batches of the tables could not be permuted anew after a day. The relay tries again.
	// Only a running relay knows it.
	Unpermuted string `json:"unpermuted,omitempty"`
}

// TableStatus is the status of one table of a set.
type TableStatus struct {
	Name string `json:"name"`
	Task string `json:"task"` // first 8 hex digits of the task's id

	// Dropped is how many slots of submissions the table did not take: it was closed or full. It sums the erased
	// epochs, each rounded up to a power of two. A first table takes every slot.
	Dropped uint64 `json:"dropped,omitempty"`
}

// String describes the status in words.
func (s SetStatus) String() string {
	var tables []string
	for _, t := range s.Tables {
		text := t.Name + " " + t.Task
		if t.Dropped > 0 {
			text += fmt.Sprintf(" (dropped %d)", t.Dropped)
		}
		tables = append(tables, text)
	}
	text := fmt.Sprintf("set %.8s %s: %s", s.ID, s.Name, strings.Join(tables, ", "))
	if len(s.Missing) > 0 {
		text += "; not served, as tables are missing: " + strings.Join(s.Missing, ", ") +
			": the owner must hand it over again"
	}
	if s.Unpermuted != "" {
		text += "; open batches are not permuted anew: " + s.Unpermuted
	}
	return text
}

// TaskStatus is the status of one task.
type TaskStatus struct {
	ID       string        `json:"id"`   // lower-case hex
	Name     string        `json:"name"` // the name in the task
	Hop      int           `json:"hop"`
	Epochs   []EpochStatus `json:"epochs"` // epochs that have data; those that a withdrawal ended before they began have none
	Findings []Finding     `json:"findings"`

	// Withdrawn says that the owner has withdrawn the task, or its stream. Erasing is then how many epochs still have
	// keys.
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Erasing   uint64 `json:"erasing,omitempty"`

	// Equivocations holds the two manifests of each batch number for which the upstream relay signed two.
	Equivocations []Equivocation `json:"equivocations,omitempty"`
}

// Equivocation holds two different manifests of the same batch number that the upstream relay signed.
type Equivocation struct {
	Epoch  uint64               `json:"epoch"`
	Batch  uint64               `json:"batch"`
	First  onion.SignedManifest `json:"first"`
	Second onion.SignedManifest `json:"second"`
}

// WithdrawnText describes the withdrawal in words, or is "" if the task is not withdrawn.
func (t TaskStatus) WithdrawnText() string {
	switch {
	case !t.Withdrawn:
		return ""
	case t.Erasing > 0:
		return fmt.Sprintf("task %.8s: withdrawn by its owner; %d epochs still have keys", t.ID, t.Erasing)
	}
	return fmt.Sprintf("task %.8s: withdrawn by its owner; all keys are erased", t.ID)
}

// EpochStatus is the status of one epoch. It omits the number of reports in an open batch: watching that number would
// reveal when each report came.
type EpochStatus struct {
	Epoch     uint64 `json:"epoch"`
	State     string `json:"state"`     // open, closed, complete, erased or expired
	Batches   uint64 `json:"batches"`   // sealed so far, including destroyed batches
	Confirmed uint64 `json:"confirmed"` // batches that the next hop has confirmed

	// Refused counts refused reports and slots by reason, each count rounded up to a power of two. It is set only after
	// the epoch is erased: before, a changing count would reveal when a report came and whether it was accepted.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Finding is an error that this relay found in another relay's batches.
type Finding struct {
	Epoch   uint64 `json:"epoch"`
	Batch   uint64 `json:"batch"` // the first batch with this finding
	Reason  Reason `json:"reason"`
	Further uint64 `json:"further,omitempty"` // number of further batches with this finding
	Latest  uint64 `json:"latest,omitempty"`  // the last batch with this finding, if there are several
}

// Batches returns the number of batches with this finding.
func (f Finding) Batches() uint64 { return 1 + f.Further }

// Reason is the kind of a finding.
type Reason = store.Reason

// Status returns the relay's state as the store has it. After an error it returns what the relay knows without the
// store, too.
func (r *Relay) Status(ctx context.Context) (*Status, error) {
	back := r.store.StateRollback()
	out, err := r.status(ctx, r.store, back)
	if err != nil {
		out = newStatus(back)
		if out.Unread = err.Error(); errors.Is(err, context.DeadlineExceeded) {
			out.Unread = "the store does not answer: " + out.Unread
		}
	}
	out.Joining = string(r.store.Joining())
	if short := r.monitor.Reserve.Short(); short != nil {
		out.Full = short.Error()
	}
	out.Unscrubbed = r.epochs.Unscrubbed()
	for i, s := range r.Hosted().Sets() {
		if i < len(out.Sets) && out.Sets[i].ID == s.ID.String() { // otherwise a set came meanwhile
			out.Sets[i].Unpermuted = r.epochs.Unpermuted(s.ID)
		}
	}
	out.Refusing, _ = r.refusals()
	out.Reload = r.reloads.status.Load()
	return out, err
}

// status reads the progress of the tasks from a store.
func (r *setup) status(ctx context.Context, kept *store.Store, back *store.StateRollbackError) (*Status, error) {
	all, err := kept.Progress(ctx)
	if err != nil {
		return nil, err
	}
	findings, err := kept.Findings(ctx)
	if err != nil {
		return nil, err
	}
	refused, err := refusedIn(ctx, kept, all)
	if err != nil {
		return nil, err
	}
	twice, err := kept.Equivocations(ctx)
	if err != nil {
		return nil, err
	}
	out := newStatus(back)
	epochs := map[task.ID][]store.Progress{}
	for _, p := range all {
		epochs[p.ID.Task] = append(epochs[p.ID.Task], p)
	}
	for _, s := range r.Hosted().Order {
		t := TaskStatus{ID: s.ID.String(), Name: s.Name, Hop: s.Hop, Epochs: []EpochStatus{}, Findings: []Finding{}}
		t.Withdrawn, t.Erasing = s.IsWithdrawn(), s.Erasing()
		for _, p := range epochs[s.ID] {
			if s.Epoch(p.ID.Epoch).NeverBegins() {
				continue
			}
			sealed := p.Next - uint64(len(p.Open))
			t.Epochs = append(t.Epochs,
				EpochStatus{p.ID.Epoch, p.State.String(), sealed, sealed - uint64(len(p.Held)), refused[p.ID]})
		}
		slices.SortFunc(t.Epochs, func(a, b EpochStatus) int { return int(a.Epoch) - int(b.Epoch) })
		for _, f := range findings {
			if f.ID.Task == s.ID {
				found := Finding{Epoch: f.ID.Epoch, Batch: f.Seq, Reason: f.Reason, Further: f.Further}
				if f.Further > 0 {
					found.Latest = f.Latest
				}
				t.Findings = append(t.Findings, found)
			}
		}
		for _, e := range twice {
			if e.ID.Task == s.ID {
				t.Equivocations = append(t.Equivocations, Equivocation{e.ID.Epoch, e.Seq, e.First, e.Second})
			}
		}
		out.Tasks = append(out.Tasks, t)
	}
	out.Sets = r.setsStatus(out.Tasks)
	out.Owners, err = r.ownersStatus(out.Tasks)
	return out, err
}

// setsStatus returns the status of the sets. all has the status of every task.
func (r *setup) setsStatus(all []TaskStatus) (out []SetStatus) {
	dropped := map[string]uint64{} // by task
	for _, t := range all {
		for _, e := range t.Epochs {
			dropped[t.ID] += e.Refused[ingress.SlotDropped]
		}
	}
	hosted := r.Hosted()
	for _, s := range hosted.Sets() {
		of := SetStatus{ID: s.ID.String(), Name: s.Name, Position: s.Position, Tables: []TableStatus{}}
		if missing := hosted.Missing(s); s.Tasks[0].Epochs.Over() > uint64(max(r.cfg.Clock().Unix(), 0)) {
			of.Missing = missing // after the last day the relay drops the tables
		}
		for _, t := range s.Tables {
			id := t.Task.String()
			of.Tables = append(of.Tables, TableStatus{t.Name, id[:8], dropped[id]})
		}
		out = append(out, of)
	}
	return out
}

// ownersStatus returns the status of the approved owners. all has the status of every task.
func (r *setup) ownersStatus(all []TaskStatus) (out []OwnerStatus, err error) {
	owners, err := r.OwnersTasks()
	if err != nil {
		return nil, err
	}
	hosted, used := map[string]*tasks.Hosted{}, map[string]OwnerStatus{}
	for _, s := range r.Hosted().Order {
		hosted[s.ID.String()] = s
	}
	for _, t := range all {
		s := hosted[t.ID]
		if s == nil || s.Owner() == "" { // dropped meanwhile, or configured
			continue
		}
		of := used[s.Owner()]
		for _, e := range t.Epochs {
			of.Batches, of.Confirmed = of.Batches+e.Batches, of.Confirmed+e.Confirmed
			of.Reports += e.Confirmed * s.Batch.Size
		}
		used[s.Owner()] = of
	}
	for _, o := range owners {
		of := used[o.Owner]
		of.Owner, of.Folder, of.TaskLimit, of.Tasks = o.Owner, filepath.Base(o.Folder), o.TaskLimit, o.Tasks
		of.Withdrawn, of.Asked, of.Suspended = o.Withdrawn, o.Asked, o.Suspended
		of.ReportsPerSecond, of.Bytes, of.Dummies, of.Limited = o.ReportsPerSecond, o.Bytes, o.Dummies, o.Limited
		out = append(out, of)
	}
	return out, nil
}

// refusedIn returns the counts of refused reports and slots, rounded up to powers of two, of the erased epochs.
func refusedIn(ctx context.Context, kept *store.Store, all []store.Progress) (map[store.EpochID]map[string]uint64,
	error) {
	tallies, err := kept.Tallies(ctx)
	if err != nil {
		return nil, err
	}
	out := map[store.EpochID]map[string]uint64{}
	for _, p := range all {
		if p.State >= store.StateErased {
			out[p.ID] = map[string]uint64{}
		}
	}
	for _, t := range tallies {
		if of := out[t.ID]; of != nil {
			of[t.Reason] = service.RoundUp(t.Refused)
		}
	}
	return out, nil
}

// AdminHandler returns the operator's HTTP interface: /healthz, /readyz, /metrics and /status. Do not make it public.
func (r *Relay) AdminHandler() http.Handler {
	admin := service.Admin{
		Ready:    r.isServing,
		Warnings: r.warnings,
		Status: func(ctx context.Context) (any, error) {
			status, _ := r.Status(ctx) // it says why something is missing
			return status, nil
		},
		UpdateGauges: func(ctx context.Context) { r.measure(ctx) },
		Metrics:      r.monitor.Metrics,
		Address:      r.cfg.Admin,
		Hosts:        r.cfg.AdminHosts,
	}
	return admin.Handler(r.cfg.Log)
}

// isServing returns why the relay is of no use to any client or next hop: it is not ready, or each of its tasks refuses
// reports. Balancers do not ask this: the relay still hands out batches, and tells other parties the time.
func (r *Relay) isServing(ctx context.Context) error {
	if err := r.isReady(ctx); err != nil {
		return err
	}
	return r.checkTasks()
}

// isReady returns why the relay accepts no reports or hands out no batches: it has not started, drains, detected a
// state rollback, waits to join other processes, doubts its clock, has no store, has a full or failing disk, or cannot
// write to its scratch folder. After a failed write isReady itself tries to write again, because nobody sends reports
// to a relay that is not ready.
func (r *Relay) isReady(ctx context.Context) error {
	if back := r.store.StateRollback(); back != nil {
		return back
	}
	if joining := r.store.Joining(); joining != "" {
		return errors.New(string(joining))
	}
	_, err := r.store.Progress(ctx)
	if err == nil {
		err = r.monitor.Reserve.CheckSpace()
	}
	if err == nil {
		err = r.checkScratch()
	}
	if err == nil && r.monitor.Failing() {
		if err = r.store.Probe(ctx); err == nil {
			r.monitor.StoreWorks()
		}
	}
	if doubt := r.clock.Read().Doubt; err == nil && doubt != "" {
		err = errors.New(string(doubt))
	}
	return cmp.Or(err, service.Ready(&r.ready))
}
