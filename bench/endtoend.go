package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// endToEnd is the way of simulated clients to an estimate on this machine, in batches of 10⁵: `doona load` plays the clients, two
// relays and a verifier serve, each in a process of its own. Time is from the start of the clients to the estimate,
// which is compared with the truth; CPU time and peak memory are each party's. The limit is the cryptography of all of
// them, spread over all cores.
var (
	endToEnd  = Group{Names: endToEndRows("e2e/1e5"), Run: measureEndToEnd("e2e/1e5", usualClients)}
	endToEnd6 = Group{Names: endToEndRows("e2e/1e6"), Run: measureEndToEnd("e2e/1e6", 10*usualClients), Long: true}
)

// players are the processes of an end-to-end run.
var players = []string{"first", "later", "verifier", "clients"}

func endToEndRows(name string) []string {
	out := []string{name + "/time", name + "/cpu"}
	for _, player := range players {
		out = append(out, name+"/"+player+"/cpu", name+"/"+player+"/memory")
	}
	return out
}

// programs returns a folder with the programs of a deployment, and a warehouse.
func (s *Setup) programs(ctx context.Context) (dir string, w *warehouse, err error) {
	if dir, err = s.Folder("endtoend"); err != nil {
		return "", nil, err
	}
	if err := buildServices(ctx, dir); err != nil {
		return "", nil, err
	}
	w, err = newWarehouse(filepath.Join(dir, "stock"), usualClients)
	return dir, w, err
}

func measureEndToEnd(name string, clients int) func(context.Context, *Setup) ([]Row, error) {
	return func(ctx context.Context, s *Setup) ([]Row, error) {
		dir, w, err := s.programs(ctx)
		if err != nil {
			return nil, err
		}
		progress("%s: %d clients", name, clients)
		got, err := newTrip(ctx, dir, filepath.Join(dir, "trip"), usual(clients))
		if err != nil {
			return nil, err
		}
		bare, err := w.cryptography(got.task)
		if err != nil {
			return nil, err
		}
		return got.rows(name, clients, bare), nil
	}
}

// rows are those of a trip, each within the cryptography of its party.
func (t *trip) rows(name string, clients int, bare []float64) []Row {
	const limit = "circl's x25519, HKDF and AES"
	all := 0.0
	for _, each := range bare {
		all += each
	}
	rows := []Row{newRow(name+"/time", "s", lower, t.seconds).
		within(limit+" of all parties on all cores", all*float64(clients)/1e6/float64(runtime.NumCPU())),
		newRow(name+"/cpu", "us/client", lower, t.total()).within(limit+" of all parties", all)}
	for i, player := range players {
		rows = append(rows, newRow(name+"/"+player+"/cpu", "us/client", lower, t.cpu[i]).within(limit, bare[i]),
			newRow(name+"/"+player+"/memory", "MB", lower, t.memory[i]/1e6))
	}
	return rows
}

// growing is how all parties' CPU time grows, clients included: the slope in the number of slots of a client, 1 to 16,
// and of relays, 1 to 4, in logarithms. That in the number of users is the verifier's, among the rows of [analyzing],
// and in the rows of e2e.
var growing = Group{Names: []string{"growth/slots", "growth/hops"}, Run: measureGrowth}

// growthClients is how many clients play for it, growthRuns how often each.
const (
	growthClients = 10_000
	growthRuns    = 3
)

func measureGrowth(ctx context.Context, s *Setup) (rows []Row, err error) {
	dir, _, err := s.programs(ctx)
	if err != nil {
		return nil, err
	}
	slots := func(n int) simulatedClients {
		return newClients(growthClients, planner.Query{Query: task.Vector, Protocol: "vectorsum", Dim: 16, Hi: 1,
			Params: planner.Params{"t": uint64(n)}})
	}
	hops := func(n int) simulatedClients {
		who := usual(growthClients)
		who.relays = n
		return who
	}
	for _, one := range []struct {
		name string
		most int
		of   func(n int) simulatedClients
	}{{"growth/slots", 16, slots}, {"growth/hops", 4, hops}} {
		if !s.wanted(one.name) {
			continue
		}
		var slopes []float64
		for run := range growthRuns {
			progress("%s %d of %d", one.name, run+1, growthRuns)
			var spent []float64
			for _, n := range []int{1, one.most} {
				folder := filepath.Join(dir, fmt.Sprint(filepath.Base(one.name), run, n))
				got, err := newTrip(ctx, dir, folder, one.of(n))
				if err != nil {
					return nil, err
				}
				spent = append(spent, got.total())
			}
			slopes = append(slopes, math.Log(spent[1]/spent[0])/math.Log(float64(one.most)))
		}
		rows = append(rows, newRow(one.name, "slope", lower, slopes...))
	}
	return rows, nil
}

// cryptography returns the microseconds of CPU time that the cryptography of one client takes each of [players], on
// all cores at once: the first relay opens the envelope and seals each slot for its disk, the later one opens a layer
// of each and seals what is in it, the verifier opens the last, and the client seals all of that.
func (w *warehouse) cryptography(t *task.Task) (each []float64, err error) {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return nil, err
	}
	envelope, slots := layout.MaxBody(), layout.SlotsPerClient()
	for _, party := range []work{
		{opens: []int{envelope}, stores: layout.SlotSize(1) * slots},
		{opens: slices.Repeat([]int{layout.SlotSize(1)}, slots), stores: layout.SlotSize(2) * slots},
		{opens: slices.Repeat([]int{layout.SlotSize(2)}, slots)},
		{seals: append(slices.Repeat([]int{layout.SlotSize(1), layout.SlotSize(2)}, slots), envelope)},
	} {
		spent, err := w.spend(party)
		if err != nil {
			return nil, err
		}
		each = append(each, spent)
	}
	return each, nil
}

// work is what a party opens and seals of one client, and how many bytes it encrypts for its disk.
type work struct {
	opens, seals []int // Sizes of ciphertexts.
	stores       int
}

// spend does it, and nothing else.
func (w *warehouse) spend(party work) (float64, error) {
	var sealed [][]byte
	for _, size := range party.opens {
		sealed = append(sealed, w.press.seal(nil, make([]byte, size-sealedOverhead)))
	}
	return perTurn(10_000, func() func() error {
		room, plain := make([]byte, 0, 1<<16), make([]byte, 1<<16)
		return func() (err error) {
			for _, slot := range sealed {
				err = errors.Join(err, w.bare.open(room, slot))
			}
			for _, size := range party.seals {
				_, failed := w.bare.sealFresh(room, plain[:size-sealedOverhead])
				err = errors.Join(err, failed)
			}
			if party.stores > 0 {
				w.press.seal(room, plain[:party.stores])
			}
			return err
		}
	})
}

// sealedOverhead is how much longer than its plaintext a slot is: a key share and a tag.
const sealedOverhead = 32 + 16
