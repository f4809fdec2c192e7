package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// press seals clients' reports on all processors. At most ahead sealed reports wait to be sent.
type press struct {
	ctx     context.Context // Ends with the first error.
	cancel  context.CancelCauseFunc
	one     func(i int) (*openloop.LoadReport, error) // Seals the report of client i.
	clients int
	reports chan *openloop.LoadReport // Closed after the last report.
	ahead   int
	bar     *cli.Bar
	ready   chan struct{} // Closed when ahead reports are sealed.
	sealers sync.WaitGroup

	begun, done atomic.Int64
}

// garbage is how much the heap may grow between two garbage collections, in percent. Nearly all garbage is reports that
// were sent. Collecting every few megabytes would take 5 % of the time for a client.
const garbage = 400

// seal starts a press. It returns when --preseal-mb megabytes of reports, or all reports, are sealed.
func (f *loadFlags) seal(ctx context.Context, client *shufflerclient.Client, epoch uint64,
	values openloop.Values) (*press, error) {
	layout, err := onion.NewLayout(client.Task().Task)
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(garbage)
	p := &press{clients: f.clients, ready: make(chan struct{}),
		ahead: min(max(f.ahead*1e6/layout.MaxBody(), 1), f.clients)}
	p.reports, p.bar = make(chan *openloop.LoadReport, p.ahead), cli.Progress("sealing", p.ahead)
	defer p.bar.Finish()
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.one = func(i int) (*openloop.LoadReport, error) { return f.sealOne(p.ctx, client, epoch, i, values(i)) }
	for range runtime.NumCPU() {
		p.sealers.Go(p.work)
	}
	go func() {
		p.sealers.Wait()
		if p.ctx.Err() == nil {
			close(p.reports)
		}
	}()
	select {
	case <-p.ready:
	case <-p.ctx.Done():
	}
	return p, p.failed()
}

// work seals one client's report after another, until none is left or ctx ends.
func (p *press) work() {
	for i := int(p.begun.Add(1)) - 1; i < p.clients; i = int(p.begun.Add(1)) - 1 {
		report, err := p.one(i)
		if err != nil {
			p.cancel(fmt.Errorf("client %d: %w", i, err))
			return
		}
		select {
		case p.reports <- report:
		case <-p.ctx.Done():
			return
		}
		if n := int(p.done.Add(1)); n <= p.ahead {
			p.bar.Add(1)
			if n == p.ahead {
				close(p.ready)
			}
		}
		runtime.Gosched() // Lets goroutines first read answers that have arrived.
	}
}

// failed returns the error that ended sealing early, or nil.
func (p *press) failed() error { return context.Cause(p.ctx) }

// stop cancels sealing and waits until all sealers have ended.
func (p *press) stop() {
	p.cancel(nil)
	p.sealers.Wait()
}

func (f *loadFlags) sealOne(ctx context.Context, client *shufflerclient.Client, epoch uint64, i int,
	value []float64) (*openloop.LoadReport, error) {
	sealed, err := client.Report(epoch, value)
	if err != nil {
		return nil, err
	}
	out := &openloop.LoadReport{Number: i, Body: sealed.Body, Client: f.network(i)}
	if client.Task().Clients.Kind != task.ClientAddress {
		bought, err := client.Token(context.WithValue(ctx, networkOf{}, out.Client), epoch)
		if err != nil {
			return nil, err
		}
		out.Authorization = token.Header(bought)
	}
	return out, nil
}

// networkOf is the context key of a client's network.
type networkOf struct{}

func (f *loadFlags) token(ctx context.Context, uri string, request []byte) ([]byte, error) {
	network, _ := ctx.Value(networkOf{}).(string)
	return shufflerclient.IssuerTokens(f.http, http.Header{f.header: {network}})(ctx, uri, request)
}

// network returns the forwarding header's value for client i, an address in its own private IPv6 /48.
func (f *loadFlags) network(i int) string {
	address := fmt.Sprintf("fd00:%x:%x::1", i>>16, i&0xffff)
	if f.header == "Forwarded" {
		return fmt.Sprintf(`for="[%s]"`, address)
	}
	return address
}
