package clock

import (
	"context"
	"math/rand/v2"
	"net/url"
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
}

// Meet returns the relays and issuers of some tasks, each once, without those whose keys are own. The guard
// then waits for their first answers, or silence.
func (g *Guard) Meet(client *handover.Client, own []task.SignKey, tasks ...*taskfile.Open) (all []Neighbour) {
	known := map[task.SignKey]bool{}
	for _, key := range own {
		known[key] = true
	}
	for _, open := range tasks {
		for hop := range open.VerifierHop() + 2 {
			key := open.Clients.Issuer.SignKey
			if hop < len(open.Relays) {
				key = open.Relays[hop].SignKey
			} else if hop == open.VerifierHop() || open.Clients.Kind != task.ClientToken {
				continue
			}
			if !known[key] {
				known[key] = true
				all = append(all, neighbour(client, open, hop))
			}
		}
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	g.Await(names...)
	return all
}

func neighbour(client *handover.Client, open *taskfile.Open, hop int) Neighbour {
	name := open.TimeURL(hop)
	if u, err := url.Parse(name); err == nil {
		name = u.Host
	}
	return Neighbour{name, func(ctx context.Context) (time.Time, error) {
		unix, err := client.Time(ctx, open, hop)
		return time.Unix(int64(unix), 0), err
	}}
}

const (
	askTimeout = 5 * time.Second // of one question
	askPace    = time.Minute     // from one to the next, as long as nothing is in doubt
	askSoon    = time.Second     // while it is
)

// Watch asks the neighbours for their clocks, and keeps the mark, until ctx ends. Call [Guard.Await] before.
func (g *Guard) Watch(ctx context.Context, neighbours []Neighbour) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, n := range neighbours {
		asking.Go(func() { g.ask(ctx, n) })
	}
	failed := false
	for {
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
