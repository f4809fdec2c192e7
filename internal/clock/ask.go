package clock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/doona-dp/doona/wire/handover"
)

// neighbour is another party of some tasks that signs its clock.
type neighbour struct {
	name   string // host and port in its newest URL
	client *handover.Client
	places []place // where it is asked, the newest first
	by     string  // identifies places: changes when they do
}

// ask asks at one place after another until one answers. It also returns the [Guard.Elapsed] at which it asked.
func (n *neighbour) ask(ctx context.Context, g *Guard) (at time.Time, asked time.Duration, err error) {
	for _, p := range n.places {
		asked = g.Elapsed()
		within, stop := context.WithTimeout(ctx, askTimeout)
		unix, failed := n.client.Time(within, p.open, p.hop)
		stop()
		if failed == nil {
			return time.Unix(int64(unix), 0), asked, nil
		}
		err = errors.Join(err, failed)
	}
	return at, asked, err
}

const (
	askTimeout = 5 * time.Second // for one question
	askPace    = time.Minute     // between questions while nothing is in doubt
	askSoon    = time.Second     // between questions while the time is in doubt
)

// Watch asks the neighbours of the last [Guard.SetPeers] for their clocks, and keeps the mark, until ctx ends.
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

// askAll starts asking new neighbours, and stops asking former ones. stop has a function for each neighbour that is
// asked.
func (g *Guard) askAll(ctx context.Context, asking *sync.WaitGroup, stop map[string]context.CancelFunc) {
	g.mu.Lock()
	g.watching = true
	neighbours := g.neighbours
	g.mu.Unlock()
	met := map[string]bool{}
	for _, n := range neighbours {
		key := n.name + " " + n.by
		met[key] = true
		if stop[key] == nil {
			within, cancel := context.WithCancel(ctx)
			stop[key] = cancel
			asking.Go(func() { g.ask(within, &n) })
		}
	}
	for key, cancel := range stop {
		if !met[key] {
			cancel()
			delete(stop, key)
		}
	}
}

// ask asks a neighbour until ctx ends: once a minute, soon if the time is in doubt, and at growing intervals while the
// neighbour does not answer, as one that is just starting.
func (g *Guard) ask(ctx context.Context, n *neighbour) {
	again := askSoon
	for {
		clock, asked, err := n.ask(ctx, g)
		pace := askPace
		if err == nil {
			g.answered(n, clock, asked)
			again = askSoon
		} else if ctx.Err() == nil {
			g.Silent(n.name)
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

// answered is [Guard.Heard] for a neighbour that is still asked, at the same places. Otherwise its word could count
// twice, under another name.
func (g *Guard) answered(n *neighbour, clock time.Time, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, met := range g.neighbours {
		if met.name == n.name && met.by == n.by {
			g.hear(n.name, clock, asked)
		}
	}
}

// wait waits, and says whether ctx continues.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
