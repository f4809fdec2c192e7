package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// setIngest measures how many answers a first relay stores durably per second of its CPU time, and how many bytes it
// writes for each, if clients answer six tables by one submission. An answer is a table's slot. The peer is the same
// relay, in the same run, where clients send as many single reports to one task of the same design.
var setIngest = Group{Names: []string{setRow, setRow + "/written"}, Run: measureSetIngest}

const (
	setRow         = "relay/ingest/set6"
	setTables      = 6
	setSubmissions = 4_000
)

func measureSetIngest(ctx context.Context, s *Setup) ([]Row, error) {
	bins, err := s.Folder("ingest-set")
	if err != nil {
		return nil, err
	}
	if _, err := command(ctx, "go", "build", "-o", bins+"/", "./cmd/relay"); err != nil {
		return nil, err
	}
	single, set, err := newSetFields(filepath.Join(bins, "set"))
	if err != nil {
		return nil, err
	}
	ours, _ := set.sides(bins)
	peer, _ := single.sides(bins)
	for run := range ingestRuns {
		progress("%s %d of %d", setRow, run+1, ingestRuns)
		takes := []func() error{func() error { return set.take(ctx, ours, intoSQLite) },
			func() error { return single.take(ctx, peer, intoSQLite) }}
		if run%2 == 1 {
			takes[0], takes[1] = takes[1], takes[0]
		}
		for _, take := range takes {
			if err := take(); err != nil {
				return nil, err
			}
		}
	}
	for i := range ours.rates { // a submission has an answer for each table
		ours.rates[i] *= setTables
		ours.written[i] /= setTables
	}
	const name = "single reports to one task"
	return []Row{newRow(setRow, "answers/cpu-s", higher, ours.rates...).against(name, peer.rates...),
		newRow(setRow+"/written", "bytes/answer", lower, ours.written...).against(name, peer.written...)}, nil
}

// newSetFields writes one deployment with a single task and a set of tables of the same design. It seals as many
// answers for both.
func newSetFields(dir string) (single, set *field, err error) {
	table := func(name string) *task.Task {
		t := fixture.Table(16, task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1})
		t.Name, t.Batch.Size, t.Clients.Quota = name, setTables*setSubmissions+1, 1 // so that no batch fills
		return t
	}
	site := quickstart.Set{Name: "site", Set: tableset.Set{Name: "site",
		Total: tableset.Total{Epsilon: task.NewEpsilon("100"), Delta: task.NewDelta("1e-3"), Days: 1}}}
	for i := range setTables {
		name := fmt.Sprint("table", i)
		site.Set.Tables = append(site.Set.Tables, tableset.Table{Name: name})
		site.Tables = append(site.Tables, table(name))
	}
	single, err = deploy(dir, []quickstart.Draft{{Name: "ingest", Task: table("single")}}, site)
	if err != nil {
		return nil, nil, err
	}
	other := *single
	set = &other
	set.url = set.Sets[0].ReportsURL(0)
	var sealers []*onion.Sealer
	for _, t := range single.Bundles {
		sealer, err := onion.NewSealer(t.Task, t.ID, t.KeyLists)
		if err != nil {
			return nil, nil, err
		}
		sealers = append(sealers, sealer)
	}
	progress("sealing %d answers twice", setTables*setSubmissions)
	slot := task.Message{Body: []byte{1}}
	single.reports, err = sealInto(setTables*setSubmissions, func() ([]byte, error) {
		return sealers[0].Seal(0, [][]task.Message{{slot}})
	})
	if err != nil {
		return nil, nil, err
	}
	sealer := onion.NewSetSealer(set.Sets[0].ID, sealers[1:])
	set.reports, err = sealInto(setSubmissions, func() ([]byte, error) {
		slots := make([]onion.SetSlot, setTables)
		for i := range slots {
			slots[i].Message = slot
		}
		return sealer.Seal(0, slots)
	})
	return single, set, err
}

// sealInto returns n sealed bodies, each from another network.
func sealInto(n int, seal func() ([]byte, error)) ([]*openloop.LoadReport, error) {
	reports := make([]*openloop.LoadReport, n)
	err := inParallel(runtime.NumCPU(), n, func(i int) error {
		body, err := seal()
		reports[i] = &openloop.LoadReport{Body: body, Client: fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff)}
		return err
	})
	return reports, err
}
