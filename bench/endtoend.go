package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// endToEnd measures a whole deployment on this machine, in batches of 10⁵: `doona load` plays the clients; two relays
// and a verifier serve, each in its own process. Time runs from the start of the clients to the verifier's estimate,
// which must be near the truth. CPU time and peak memory are reported per process. The limit is the time that all
// cryptography takes on all cores.
var (
	endToEnd  = Group{Names: endToEndRows("e2e/1e5"), Run: measureEndToEnd("e2e/1e5", usualClients)}
	endToEnd6 = Group{Names: endToEndRows("e2e/1e6"), Run: measureEndToEnd("e2e/1e6", 10*usualClients), Long: true}
)

// manySlots measures a whole deployment with one batch of 10⁶ clients of protocol correlated, which send about 20
// messages each: 2·10⁷ slots in one batch. It fails if a relay or the verifier takes more memory than mostMemory.
var manySlots = Group{
	Names: endToEndRows("e2e/correlated"),
	Run:   measureManySlots("e2e/correlated", 10*usualClients),
	Long:  true,
}

// mostMemory is the most memory that a relay or the verifier may take for a batch of 10⁶ clients, in MB.
const mostMemory = 500

// players names the processes of an end-to-end run: first relay, later relay, verifier, and the simulated clients.
var players = []string{"first", "later", "verifier", "clients"}

func endToEndRows(name string) []string {
	out := []string{name + "/time", name + "/cpu"}
	for _, player := range players {
		out = append(out, name+"/"+player+"/cpu", name+"/"+player+"/memory")
	}
	return out
}

// programs builds the programs of a deployment into a new folder. It returns the folder and a warehouse, which seals
// and opens slots for the limits.
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
	return measureTrip(name, usual(clients))
}

func measureTrip(name string, who simulatedClients) func(context.Context, *Setup) ([]Row, error) {
	return func(ctx context.Context, s *Setup) ([]Row, error) {
		dir, w, err := s.programs(ctx)
		if err != nil {
			return nil, err
		}
		progress("%s: %d clients", name, who.clients)
		got, err := newTrip(ctx, dir, filepath.Join(dir, "trip"), who)
		if err != nil {
			return nil, err
		}
		bare, err := w.cryptography(got.task)
		if err != nil {
			return nil, err
		}
		return got.rows(name, who.clients, bare), nil
	}
}

func measureManySlots(name string, clients int) func(context.Context, *Setup) ([]Row, error) {
	run := measureTrip(name, correlatedClients(clients))
	return func(ctx context.Context, s *Setup) ([]Row, error) {
		rows, err := run(ctx, s)
		for _, r := range rows {
			player, memory := strings.CutSuffix(strings.TrimPrefix(r.Name, name+"/"), "/memory")
			if memory && player != "clients" && *r.Ours > mostMemory {
				err = errors.Join(err, fmt.Errorf("%s takes %.0f MB of memory: want at most %d", player, *r.Ours, mostMemory))
			}
		}
		return rows, err
	}
}

// rows returns the rows of a trip. The limit of each CPU row is bare: the cryptography of that party per client, in µs.
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

// growing measures how the CPU time of all parties grows, clients included. It is a slope in logarithms: 1 is linear
// growth. It grows the slots per client from 1 to 16, and the relays from 1 to 4. For growth in the number of clients
// see growth/users in [analyzing], which covers the verifier, and the e2e rows.
var growing = Group{Names: []string{"growth/slots", "growth/hops"}, Run: measureGrowth}

// growthClients is the number of simulated clients in each run. growthRuns is the number of slopes measured per row.
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

// cryptography returns the CPU time per client of each of [players] for cryptography alone, in microseconds, with all
// cores busy. The first relay opens the envelope and encrypts its slots for the disk. The later relay opens a layer of
// each slot and encrypts the content for the disk. The verifier opens the last layer. The client seals all layers.
func (w *warehouse) cryptography(t *task.Task) (each []float64, err error) {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return nil, err
	}
	envelope, slots := layout.MaxBody(), layout.SlotsPerClient()
	if t.Slots.Padding == task.PaddingNone {
		m, err := registry.Open(t)
		if err != nil {
			return nil, err
		}
		messages, bytes, err := planner.Cost(t, m, len(t.Relays))
		if err != nil {
			return nil, err
		}
		envelope, slots = int(bytes), int(math.Round(messages))
	}
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

// work is the cryptography that a party does for one client.
type work struct {
	opens, seals []int // Sizes of the ciphertexts that the party opens and seals, in bytes.
	stores       int   // Bytes that the party encrypts for its disk.
}

// spend does a party's cryptography for one client many times. It returns the CPU time per client in microseconds.
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

// sealedOverhead is how many bytes a sealed slot is longer than its plaintext: a key share of 32 and a tag of 16.
const sealedOverhead = 32 + 16
