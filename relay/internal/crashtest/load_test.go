package crashtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/problem"
)

// fate is what a client knows about its report.
type fate int

const (
	acknowledged fate = iota // answer 201: the report must not be lost
	refused                  // epoch-closed at the first attempt: the report must not be delivered
	unknown                  // epoch-closed after an attempt without an answer: either may happen
)

// sent is a report that was sent, and its fate.
type sent struct {
	task  int
	epoch uint64
	body  []byte
	fate  fate
}

// load is a set of clients. Each sends one report after another, as fast as the relay acknowledges them.
type load struct {
	world    *world
	clients  sync.WaitGroup
	stop     atomic.Bool
	acked    atomic.Int64
	attempts atomic.Int64 // attempts without an answer, or with a request to try again
	networks atomic.Int64

	mu     sync.Mutex // guards the rest
	sent   []sent
	failed error
}

// startLoad starts clients. Each waits for a random time up to pause before every report.
func startLoad(ctx context.Context, w *world, clients int, pause time.Duration) *load {
	l := &load{world: w}
	for range clients {
		l.clients.Go(func() {
			for !l.stop.Load() && ctx.Err() == nil {
				time.Sleep(rand.N(pause))
				if err := l.one(ctx); err != nil {
					l.mu.Lock()
					l.failed = errors.Join(l.failed, err)
					l.mu.Unlock()
					return
				}
			}
		})
	}
	return l
}

// one makes a report for the current epoch and sends it until its fate is known.
func (l *load) one(ctx context.Context) error {
	epoch, ok := l.world.epochAt(time.Now())
	if !ok {
		return nil
	}
	index := rand.IntN(len(l.world.clients))
	r, err := l.world.clients[index].Report(epoch, []float64{float64(rand.IntN(2))})
	if err != nil {
		return err
	}
	s := sent{task: index, epoch: epoch, body: r.Body}
	if s.fate, err = l.send(ctx, &s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, s)
	return nil
}

// send posts the same bytes until the relay accepts them or has closed the epoch.
func (l *load) send(ctx context.Context, s *sent) (fate, error) {
	from := relaytest.Network(int(l.networks.Add(1)))
	for try := 0; ; try++ {
		err := l.post(ctx, s, from)
		var p *problem.Problem
		named := errors.As(err, &p)
		switch {
		case err == nil:
			l.acked.Add(1)
			return acknowledged, nil
		case ctx.Err() != nil:
			return unknown, ctx.Err()
		case named && p.Name == problem.EpochClosed && try == 0:
			return refused, nil
		case named && p.Name == problem.EpochClosed:
			return unknown, nil
		case named && p.Name != problem.Overloaded && p.Name != problem.ClockInDoubt:
			return unknown, fmt.Errorf("a report of epoch %d was refused: %w", s.epoch, err)
		}
		l.attempts.Add(1)
		time.Sleep(between(20*time.Millisecond, 150*time.Millisecond))
	}
}

// line is the clients' HTTP client; they reach the relay through its proxy.
var line = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 30 * time.Second}

func (l *load) post(ctx context.Context, s *sent, from string) error {
	open := l.world.Bundles[s.task]
	url := l.world.proxies[0].url + strings.TrimPrefix(open.ReportsURL(s.epoch), open.Relays[0].URL)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(s.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/msgpack")
	req.Header.Set("X-Forwarded-For", from)
	resp, err := line.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return problem.Read(resp)
	}
	return nil
}

// end stops the clients and waits until the epochs of all their reports are over. last is the last of these epochs.
func (l *load) end(t *testing.T) (all []sent, last uint64) {
	t.Helper()
	last, _ = l.world.epochAt(time.Now())
	l.stop.Store(true)
	l.clients.Wait()
	require.NoError(t, l.failed, "%s", l.world.logs())
	for i := range l.sent {
		last = max(last, l.sent[i].epoch)
	}
	time.Sleep(time.Until(l.world.over(last)))
	return l.sent, last
}
