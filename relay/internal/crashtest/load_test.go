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

// fate is a client's knowledge of its report.
type fate int

const (
	acknowledged fate = iota // 201: the relay must not lose it
	refused                  // epoch-closed at the first attempt: it must not be delivered
	unknown                  // epoch-closed after an attempt without an answer: both are allowed
)

// sent is a report that was sent, and the client's result.
type sent struct {
	task  int
	epoch uint64
	body  []byte
	fate  fate
}

// load is a set of clients that report all the time, each with as many reports as it can get acknowledged.
type load struct {
	world    *world
	clients  sync.WaitGroup
	stop     atomic.Bool
	acked    atomic.Int64
	attempts atomic.Int64 // without an answer, or with one that asks for another attempt
	networks atomic.Int64

	mu     sync.Mutex // guards the rest
	sent   []sent
	failed error
}

// startLoad starts clients, each of which waits for up to pause before it reports.
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

// one makes a report for the current epoch and sends it until it has an answer.
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

// send posts identical bytes until the relay accepts them or closes the epoch.
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

// line is the clients' transport to the proxy.
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

// end stops the clients, waits for their answers, and then until the epochs of their reports are over; last is the last
// epoch.
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
