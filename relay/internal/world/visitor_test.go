package world_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// The task of a visitor's year: one event in any 60 days, and no more than 7 in a year, under a yearly total.
const (
	visitorDay  = 24 * time.Hour
	visitorDays = 365
	usualLetter = 2
)

// visitorTask is a task with rare events of one letter of 4. letter opens what leaves a device, with all parties' keys.
type visitorTask struct {
	open   *taskfile.Open
	law    *compose.Law
	letter func(epoch uint64, body []byte) uint64
}

// day returns the length of an epoch.
func (of *visitorTask) day() time.Duration { return time.Duration(of.open.Epochs.Length) * time.Second }

// begins returns when the first epoch begins.
func (of *visitorTask) begins() time.Time { return time.Unix(int64(of.open.Epochs.Start), 0) }

func newVisitorTask(t *testing.T) *visitorTask {
	t.Helper()
	draft, err := planner.Draft(planner.Query{Name: "year", Query: task.Histogram, Bins: 4, Labels: true, Batch: 1000,
		Honest: .9, TotalEpsilon: 3, TotalDelta: 1e-5, Epochs: visitorDays, Relays: &planner.RelayNoise{},
		Events: task.Events{Most: 1, Window: 60, Default: usualLetter}})
	require.NoError(t, err)
	signed, err := fixture.Sign(draft, []string{"http://relay1", "http://relay2"}, task.Epochs{
		Start: uint64(beginning.Unix()), Length: task.Length(visitorDay.Seconds()), Count: visitorDays,
		Events: draft.Epochs.Events})
	require.NoError(t, err)
	open, err := signed.Bundle.Open(nil)
	require.NoError(t, err)
	return &visitorTask{open, lawOf(t, open), func(epoch uint64, body []byte) uint64 {
		lanes, err := signed.Open(epoch, body)
		require.NoError(t, err)
		require.Len(t, lanes, 1)
		require.Len(t, lanes[0], 1)
		return letterOf(lanes[0][0])
	}}
}

// lawOf returns the law of the privacy loss of one epoch of a task.
func lawOf(t *testing.T, open *taskfile.Open) *compose.Law {
	t.Helper()
	m, err := registry.Open(open.Task)
	require.NoError(t, err)
	law, err := m.Law()
	require.NoError(t, err)
	return law
}

// letterOf returns the cell of a message of few cells.
func letterOf(m task.Message) uint64 { return uint64(m.Body[len(m.Body)-1]) }

// visitor is one person's device for all of a task's epochs, its days. Its process dies and starts again, its power is
// cut, its disk fills, its clock leaps, and requests and answers are lost. A seed draws all of it; how often the device
// writes may differ between runs.
type visitor struct {
	*visitorTask
	device
	http    shufflerclient.HTTP
	visits  time.Duration // after the beginning of a day
	retries time.Duration // between attempts to send a report
	events  int           // it has a value other than the default on one of this many days
	client  *shufflerclient.Client
	forgets bool              // a planted fault: each start of the process forgets the allowance
	left    map[uint64]string // by epoch: the body that left the device
	again   int               // epochs of which two different bodies left

	instead, resent int
}

// device is what a visitor's programs run on.
type device struct {
	t      *testing.T
	rng    *rand.Rand
	folder string
	disk   *faultdisk.Disk
	offset time.Duration // how far its clock is ahead of the true time

	crashes, cuts, full, leaps int
}

// leaves records a request with a report.
func (v *visitor) leaves(req *http.Request) (epoch uint64, body []byte) {
	body, err := io.ReadAll(req.Body)
	require.NoError(v.t, err)
	req.Body = io.NopCloser(bytes.NewReader(body))
	for epoch = range v.open.Epochs.Count {
		if req.URL.String() == v.open.ReportsURL(epoch) {
			break
		}
	}
	if before, ok := v.left[epoch]; ok && before != string(body) {
		v.again++
	}
	v.left[epoch] = string(body)
	return epoch, body
}

// lossy plays the first relay of a visitor and the network before it.
type lossy struct{ *visitor }

// Do implements [shufflerclient.HTTP].
func (v lossy) Do(req *http.Request) (*http.Response, error) {
	lost := errors.New("the connection is lost")
	if v.rng.IntN(6) == 0 {
		return nil, lost
	}
	v.leaves(req)
	if v.rng.IntN(6) == 0 {
		return nil, lost
	}
	return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
}

func (v *device) path(name string) string { return filepath.Join(v.folder, name) }

// start starts the process on what is on the disk.
func (v *visitor) start() {
	v.disk.Revive()
	if v.forgets {
		v.forget()
	}
	total := v.open.Claim.Total
	client, err := shufflerclient.New(v.open, shufflerclient.Options{HTTP: v.http,
		Budget: shufflerclient.Budget{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value(), Days: visitorDays},
		Ledger: shufflerclient.LedgerFile(v.path("ledger.json")),
		Pause: func(ctx context.Context, _ time.Duration) error {
			time.Sleep(v.retries)
			return ctx.Err()
		}})
	require.NoError(v.t, err)
	v.client = client
}

// forget drops the events from the ledger's file.
func (v *visitor) forget() { v.edit(func(line *shufflerclient.Line) { line.Events = nil }) }

// edit changes the lines of the ledger's file, if there is one.
func (v *device) edit(change func(line *shufflerclient.Line)) {
	raw, err := os.ReadFile(v.path("ledger.json"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(v.t, err)
	var ledger shufflerclient.Ledger
	require.NoError(v.t, json.Unmarshal(raw, &ledger))
	for i := range ledger.Lines {
		change(&ledger.Lines[i])
	}
	raw, err = json.Marshal(ledger)
	require.NoError(v.t, err)
	require.NoError(v.t, durable.WriteFile(v.path("ledger.json"), raw, 0o600))
}

// move puts the device's files into a new folder, as a power cut leaves them, or as they are if it has no disk yet.
func (v *device) move(number int) {
	into := filepath.Join(filepath.Dir(v.folder), fmt.Sprintf("disk%d", number))
	if v.disk == nil {
		require.NoError(v.t, os.Mkdir(into, 0o700))
	} else {
		require.NoError(v.t, v.disk.Cut(v.disk.Steps(), v.rng, into))
		v.disk.Remove()
	}
	v.folder, v.disk = into, faultdisk.New(into)
	require.NoError(v.t, v.disk.Record())
}

// live plays all days, with its files in a folder.
func (v *visitor) live(folder string) {
	v.folder = filepath.Join(folder, "none")
	v.move(0)
	defer func() { v.disk.Remove() }()
	v.start()
	for day := range v.open.Epochs.Count {
		time.Sleep(time.Until(v.begins().Add(time.Duration(day)*v.day() + v.visits)))
		v.fault(int(v.open.Epochs.Count), v.day())
		if v.rng.IntN(5) > 0 {
			v.visit()
		}
		v.offset = 0
		switch v.rng.IntN(12) {
		case 0:
			v.crashes++
			v.start()
		case 1:
			v.cuts++
			v.move(v.cuts)
			v.start()
		}
	}
}

// fault draws what goes wrong on a day. The clock leaps by less than a number of days.
func (v *device) fault(days int, day time.Duration) {
	switch v.rng.IntN(10) {
	case 0: // It dies at one of the next writes.
		v.disk.Stop(v.rng.IntN(12), func() {})
	case 1:
		v.full++
		v.disk.Fill(1 + v.rng.IntN(6))
	case 2:
		v.leaps++
		v.offset = time.Duration(v.rng.IntN(2*days)-days) * day
	}
}

// visit sends the report that waits on the disk, and then today's report, by the device's clock.
func (v *visitor) visit() {
	if v.disk.Dead() {
		v.crashes++
		v.start()
	}
	v.send()
	today := int(time.Now().Add(v.offset).Sub(v.begins()) / v.day())
	if today < 0 || today >= int(v.open.Epochs.Count) {
		return
	}
	value := float64(v.open.Epochs.Events.Default)
	if v.rng.IntN(v.events) == 0 {
		value = float64(v.rng.IntN(4))
	}
	report, err := v.client.Report(uint64(today), []float64{value})
	if err != nil {
		ends := errors.Is(err, shufflerclient.ErrReported) || errors.Is(err, faultdisk.ErrFailed)
		require.True(v.t, ends, "%v", err)
		return
	}
	if report.Instead != nil {
		require.ErrorIs(v.t, report.Instead, shufflerclient.ErrAllowance)
		v.instead++
	}
	raw, err := json.Marshal(report)
	require.NoError(v.t, err)
	if durable.WriteFile(v.path("report.json"), raw, 0o600) == nil {
		v.send()
	}
}

// send sends the report that waits on the disk, if there is one. It stays there until it is acknowledged.
func (v *visitor) send() {
	raw, err := os.ReadFile(v.path("report.json"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(v.t, err)
	var report shufflerclient.Report
	require.NoError(v.t, json.Unmarshal(raw, &report))
	if _, ok := v.left[report.Epoch]; ok {
		v.resent++
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+v.rng.IntN(3))*v.retries)
	defer cancel()
	if v.client.Submit(ctx, &report) == nil && !v.disk.Dead() {
		require.NoError(v.t, os.Remove(v.path("report.json")))
	}
}

// sentEvents opens all that left and returns the epochs of the letters other than the default, ascending.
func (v *visitor) sentEvents() (out []uint64) {
	for epoch, body := range v.left {
		if v.letter(epoch, []byte(body)) != v.open.Epochs.Events.Default {
			out = append(out, epoch)
		}
	}
	slices.Sort(out)
	return out
}

// exceeds says what is wrong with the letters that left: two of one epoch, more events than some window allows, or a
// larger δ over all epochs than the task claims, composed again from the number of events; "" if nothing. It reads no
// ledger. The task allows one event in a window.
func (v *visitor) exceeds() string {
	events, total := v.sentEvents(), v.open.Claim.Total
	if v.again > 0 {
		return "two reports of one epoch"
	}
	for i := 1; i < len(events); i++ {
		if events[i]-events[i-1] < v.open.Epochs.Events.Window {
			return fmt.Sprintf("events in epochs %d and %d", events[i-1], events[i])
		}
	}
	if len(events) == 0 {
		return ""
	}
	seen := []compose.Observation{v.law.Observation(uint64(len(events)))}
	if delta := compose.Delta(seen, total.Epsilon.Value(), total.Delta.Value()); delta > total.Delta.Value() {
		return fmt.Sprintf("%d events cost delta %v", len(events), delta)
	}
	return ""
}

// playVisitor plays the year of a seed in a bubble of package synctest.
func (of *visitorTask) playVisitor(t *testing.T, seed uint64, forgets bool) (v *visitor) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v = &visitor{visitorTask: of, device: device{t: t, rng: rand.New(rand.NewPCG(seed, 46))}, visits: time.Hour,
			retries: time.Minute, events: 4, forgets: forgets, left: map[uint64]string{}}
		v.http = lossy{v}
		v.live(t.TempDir())
	})
	v.t = t
	return v
}

// TestAVisitorsYear: a visitor with events at random never exceeds the task's claim, computed again from the letters
// that left the device: opened with all parties' keys, without the device's ledger. The same year on a device that
// forgets its allowance when its process starts must be found to exceed it.
func TestAVisitorsYear(t *testing.T) {
	faultdisk.Install()
	of, seeds := newVisitorTask(t), uint64(2)
	if stattest.Long {
		seeds = 200
	}
	copies := of.open.MostCopies(visitorDays)
	total := of.open.Claim.Total
	more := []compose.Observation{of.law.Observation(copies + 1)}
	require.Greater(t, compose.Delta(more, total.Epsilon.Value(), total.Delta.Value()), total.Delta.Value(), "one more")
	events := 0
	for seed := range seeds {
		v := of.playVisitor(t, seed, false)
		t.Logf("seed %d: %d reports left, %d again, %d events, %d became the default; %d crashes, %d power cuts, "+
			"%d full disks, %d leaps", seed, len(v.left), v.resent, len(v.sentEvents()), v.instead, v.crashes, v.cuts,
			v.full, v.leaps)
		require.Empty(t, v.exceeds(), "seed %d", seed)
		events += len(v.sentEvents())
		require.Greater(t, min(v.resent, v.instead, v.crashes, v.cuts, v.full, v.leaps), 0, "seed %d", seed)
		found := of.playVisitor(t, seed, true).exceeds()
		require.NotEmpty(t, found, "seed %d", seed)
		t.Logf("with a forgotten allowance: %s", found)
	}
	require.Greater(t, events, 0)
}
