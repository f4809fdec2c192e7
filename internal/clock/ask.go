package clock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/doona-dp/doona/wire/handover"
)

// peer is a peer: another party of the same tasks, which answers with its signed clock.
type peer struct {
	name   string // host and port in the peer's newest URL
	client *handover.Requester
	routes []route // ways to ask the peer, by the newest task first
	id     string  // identifies the routes
}

// ask tries one route after another until the peer answers. asked is what [Guard.Elapsed] returned just before that
// question.
func (n *peer) ask(ctx context.Context, g *Guard) (at time.Time, asked time.Duration, err error) {
	for _, p := range n.routes {
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
	askTimeout = 5 * time.Second // time limit of one question
	askPace    = time.Minute     // interval between questions to a peer while the time is known
	askSoon    = time.Second     // interval while the time is in doubt
)

// Watch asks the peers of the last [Guard.SetPeers] for their clocks, and updates the mark, until ctx ends.
func (g *Guard) Watch(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	stop := map[string]context.CancelFunc{}
	failed := false
	for {
		g.askAll(ctx, &asking, stop)
		err := g.Tick()
		if err != nil && !failed {
			g.o.Log.Error("couldn't write the clock's mark; trying again", "error", err)
		}
		failed = err != nil
		if !wait(ctx, askSoon) {
			if err := g.Save(); err != nil {
				g.o.Log.Error("couldn't write the clock's mark", "error", err)
			}
			return
		}
	}
}

// askAll starts to ask new peers and stops asking former ones. stop has a function for each peer that the guard asks.
func (g *Guard) askAll(ctx context.Context, asking *sync.WaitGroup, stop map[string]context.CancelFunc) {
	g.mu.Lock()
	g.watching = true
	peers := g.peers
	g.mu.Unlock()
	current := map[string]bool{}
	for _, n := range peers {
		key := n.name + " " + n.id
		current[key] = true
		if stop[key] == nil {
			within, cancel := context.WithCancel(ctx)
			stop[key] = cancel
			asking.Go(func() { g.ask(within, &n) })
		}
	}
	for key, cancel := range stop {
		if !current[key] {
			cancel()
			delete(stop, key)
		}
	}
}

// ask asks a peer until ctx ends: once a minute, but each second while the time is in doubt. While the peer does not
// answer, perhaps because it is starting, the interval doubles from a second up to a minute.
func (g *Guard) ask(ctx context.Context, n *peer) {
	retry := askSoon
	for {
		clock, asked, err := n.ask(ctx, g)
		pace := askPace
		if err == nil {
			g.recordIfCurrent(n, clock, asked)
			retry = askSoon
		} else if ctx.Err() == nil {
			g.RecordSilence(n.name)
			pace, retry = retry, min(2*retry, askPace)
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

// recordIfCurrent calls [Guard.RecordAnswer] if the guard still asks the peer by the same routes. Otherwise the peer
// may have come back under another name, and would count twice.
func (g *Guard) recordIfCurrent(n *peer, clock time.Time, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, current := range g.peers {
		if current.name == n.name && current.id == n.id {
			g.record(n.name, clock, asked)
		}
	}
}

// wait waits for d. It returns false if ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
