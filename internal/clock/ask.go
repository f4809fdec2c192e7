package clock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Neighbour is another party of a task, which signs what its clock says.
type Neighbour struct {
	Name string // the host and port in its URL
	Ask  func(context.Context) (time.Time, error)
	by   string // the tasks by which it is asked
}

// Meet has the guard ask the relays and issuers of some tasks for their clocks, each once, but not those whose keys
// are own, nor any longer whom it asked before. It asks by the newest task, and by one before where that is not
// answered: not every party has the newest yet. Called before [Guard.Watch], it has the guard wait for their first
// answers, or silence.
func (g *Guard) Meet(client *handover.Client, own []task.SignKey, tasks ...*taskfile.Open) {
	places := map[string][]place{} // by the neighbour's name, the newest first
	for _, open := range slices.Backward(tasks) {
		for hop := range open.VerifierHop() + 2 {
			key := open.Clients.Issuer.SignKey
			if hop < len(open.Relays) {
				key = open.Relays[hop].SignKey
			} else if hop == open.VerifierHop() || open.Clients.Kind != task.ClientToken {
				continue
			}
			name := open.TimeURL(hop)
			if u, err := url.Parse(name); err == nil {
				name = u.Host
			}
			if !slices.Contains(own, key) && len(places[name]) < askedBy {
				places[name] = append(places[name], place{open, hop})
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.neighbours = nil
	names := slices.Sorted(maps.Keys(places))
	for _, name := range names {
		g.neighbours = append(g.neighbours, neighbour(client, name, places[name]))
	}
	if g.watching {
		g.known = names
		maps.DeleteFunc(g.pending, func(name string, _ bool) bool { return !slices.Contains(names, name) })
		return
	}
	g.waitFor(names)
}

// askedBy is by how many of its tasks a neighbour is asked until one is answered.
const askedBy = 2

// place is a party's place in a task.
type place struct {
	open *taskfile.Open
	hop  int
}

func neighbour(client *handover.Client, name string, places []place) Neighbour {
	n := Neighbour{Name: name, Ask: func(ctx context.Context) (at time.Time, err error) {
		for _, p := range places {
			unix, failed := client.Time(ctx, p.open, p.hop)
			if failed == nil {
				return time.Unix(int64(unix), 0), nil
			}
			err = errors.Join(err, failed)
		}
		return at, err
	}}
	for _, p := range places {
		n.by += p.open.ID.String()
	}
	return n
}

const (
	askTimeout = 5 * time.Second // of one question
	askPace    = time.Minute     // from one to the next, as long as nothing is in doubt
	askSoon    = time.Second     // while it is
)

// Watch asks the neighbours for their clocks, those of the last [Guard.Meet], and keeps the mark, until ctx ends.
func (g *Guard) Watch(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	stop := map[string]context.CancelFunc{}
	failed := false
	for {
		g.askAll(ctx, &asking, stop)
		err := g.Tick()
		if err != nil && !failed {
			g.o.Log.Error("couldn't keep the time; trying again", "error", err)
		}
		failed = err != nil
		if !wait(ctx, askSoon) {
			if err := g.Save(); err != nil {
				g.o.Log.Error("couldn't keep the time", "error", err)
			}
			return
		}
	}
}

// askAll begins to ask the neighbours that are not asked yet, and leaves off where nobody is met any more. stop has one
// function for each that is asked.
func (g *Guard) askAll(ctx context.Context, asking *sync.WaitGroup, stop map[string]context.CancelFunc) {
	g.mu.Lock()
	g.watching = true
	neighbours := g.neighbours
	g.mu.Unlock()
	met := map[string]bool{}
	for _, n := range neighbours {
		key := n.Name + " " + n.by
		met[key] = true
		if stop[key] == nil {
			within, cancel := context.WithCancel(ctx)
			stop[key] = cancel
			asking.Go(func() { g.ask(within, n) })
		}
	}
	for key, cancel := range stop {
		if !met[key] {
			cancel()
			delete(stop, key)
		}
	}
}

// ask asks a neighbour until ctx ends: slowly, at once where the time is in doubt, and ever more slowly where
// it does not answer, as one that starts just now soon does.
func (g *Guard) ask(ctx context.Context, n Neighbour) {
	again := askSoon
	for {
		asked := g.Elapsed()
		within, stop := context.WithTimeout(ctx, askTimeout)
		clock, err := n.Ask(within)
		stop()
		pace := askPace
		if err == nil {
			g.Heard(n.Name, clock, asked)
			again = askSoon
		} else if ctx.Err() == nil {
			g.Silent(n.Name)
			pace, again = again, min(2*again, askPace)
		}
		until := time.Now().Add(pace*3/4 + rand.N(pace/2))
		for time.Now().Before(until) {
			if !wait(ctx, askSoon*3/4+rand.N(askSoon/2)) {
				return
			}
			if g.Read().Doubt != "" {
				break
			}
		}
	}
}

// wait waits, and says whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
