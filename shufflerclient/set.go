package shufflerclient

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// SetClient reports to a set of tables, by one submission a day. It is safe for concurrent use.
//
// With a ledger, [SetClient.Report] decides to which tables a browser or a person reports on a day. Without one, the
// caller decides and calls [SetClient.Seal]: at most once in each epoch of a table, within its cap, pace and events,
// and by earlier reports alone. A submission must go out on each day that a person takes part, whatever the values. So
// the set's total holds.
type SetClient struct {
	options    Options
	set        *tableset.Open
	mechanisms []protocols.Mechanism // by table
	poster     *Client               // of the first table: sends submissions, gets tokens
	usual      []task.Message        // by table: its default; a cover if it is bare. Only with a ledger

	mu   sync.Mutex
	keys map[[2]uint64][]*onion.SignedKeyList // by clock and block
}

// mostKept is how many blocks of keys a client keeps.
const mostKept = 64

// ConnectSet fetches a set and checks it: the id in the URL, the owner's signature, the tables, the claim of each table
// and the total of all. [Options.Task] is the URL of the set at its first relay: …/v1/sets/ID. If ID names the set
// at position 0, the relay answers with the latest renewal that has begun. MaxEpsilon and MaxDelta limit the total;
// with a Ledger, so does the Budget, and MaxEpsilon may be left out. Stream does not apply. A client with a ledger
// refuses renewals.
func ConnectSet(ctx context.Context, o Options) (*SetClient, error) {
	if o.HTTP == nil {
		o.HTTP = defaultHTTP()
	}
	if o.Pause == nil {
		o.Pause = pauseByTimer
	}
	if o.Tokens == nil {
		o.Tokens = IssuerTokens(o.HTTP, nil)
	}
	owner, err := taskfile.ParseKey("owner", o.Owner)
	if err != nil {
		return nil, err
	}
	raw, err := fetchAll(ctx, o.HTTP, o.Task, tableset.MaxBundle)
	if err != nil {
		return nil, err
	}
	bundle, err := tableset.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	set, err := bundle.Open(&owner)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(o.Task, "/"+set.ID.String()) && !strings.HasSuffix(o.Task, "/"+set.RootID().String()) {
		return nil, fmt.Errorf("couldn't accept the set: its id is %s", set.ID)
	}
	c := &SetClient{options: o, set: set, keys: map[[2]uint64][]*onion.SignedKeyList{}}
	if err := c.checkClaims(); err != nil {
		return nil, err
	}
	if o.Ledger != nil {
		if err := c.checkLedger(); err != nil {
			return nil, err
		}
	}
	c.poster = &Client{options: o, open: &taskfile.Open{Task: set.Tasks[0], ID: set.Tables[0].Task, Owner: set.Owner},
		issuer: &issuerKey{}}
	return c, nil
}

// fetchAll fetches a document of at most a number of bytes.
func fetchAll(ctx context.Context, client HTTP, url string, most int64) ([]byte, error) {
	body, err := fetch(ctx, client, url)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch %s: %w", url, err)
	}
	return raw, nil
}

// checkClaims checks the claim of each table, the total of all, and that the total is within the options' limits.
func (c *SetClient) checkClaims() error {
	var laws []func() (*compose.Law, error)
	for i, t := range c.set.Tasks {
		m, err := registry.Open(t)
		if err == nil {
			err = m.CheckClaim()
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", c.set.Tables[i].Name, err)
		}
		c.mechanisms, laws = append(c.mechanisms, m), append(laws, m.Law)
	}
	total, o := c.set.Total, c.options
	epsilon, delta := total.Epsilon.Value(), total.Delta.Value()
	derived, err := protocols.SetDelta(laws, c.set.Copies(), epsilon, delta)
	if err != nil {
		return err
	}
	if !(derived <= delta) {
		return invalid.Field("total.delta", total.Delta.String(), "at least "+decimal.Up(derived, 7)+
			", the delta of all tables together at epsilon "+total.Epsilon.String())
	}
	if o.MaxDelta == 0 {
		o.MaxDelta = defaultMaxDelta
	}
	if o.MaxEpsilon == 0 && o.Ledger != nil {
		o.MaxEpsilon = math.Inf(1)
	}
	switch {
	case !(o.MaxEpsilon > 0):
		return invalid.Field("MaxEpsilon", fmt.Sprint(o.MaxEpsilon), "a number above 0")
	case !(epsilon <= o.MaxEpsilon):
		return invalid.Field("MaxEpsilon", fmt.Sprint(o.MaxEpsilon), "at least "+total.Epsilon.String()+", the set's total")
	case !(delta <= o.MaxDelta):
		return invalid.Field("MaxDelta", fmt.Sprint(o.MaxDelta), "at least "+total.Delta.String()+", the set's total")
	}
	return nil
}

// Set returns the checked set.
func (c *SetClient) Set() *tableset.Open { return c.set }

// Day returns the day of the set that contains a time, if there is one.
func (c *SetClient) Day(at time.Time) (day uint64, ok bool) {
	return c.set.Tasks[0].Epochs.At(uint64(max(at.Unix(), 0)))
}

// Seal randomizes values, by the names of their tables, and seals the submission of a day. A table without a value gets
// a cover; so every submission has one size. Call it once per person and day and keep the result, also if there is no
// value: that somebody took part must not depend on values. A table that has no epoch on the day, or is bare, takes no
// value. Seal fetches the keys of blocks of epochs that it does not have.
func (c *SetClient) Seal(ctx context.Context, day uint64, values map[string][]float64) (*Report, error) {
	if count := c.set.Tasks[0].Epochs.Count; day >= count {
		return nil, invalid.Field("day", fmt.Sprint(day), fmt.Sprintf("0 to %d", count-1))
	}
	messages, known := make([]task.Message, len(c.set.Tables)), 0
	for i, table := range c.set.Tables {
		messages[i] = task.Message{Cover: true}
		if value, has := values[table.Name]; has {
			known++
			if _, open := c.set.At(i, day); table.Bare || !open {
				return nil, invalid.Field("values", table.Name, "tables that have values and are open on the day")
			}
			drawn, err := c.mechanisms[i].Randomize(randomizer.NewSource(), value)
			if err != nil {
				return nil, fmt.Errorf("table %s: %w", table.Name, err)
			}
			messages[i] = task.Message{Body: drawn[0][0]}
		}
	}
	if known < len(values) {
		return nil, errOtherTable
	}
	sealer, err := c.sealer(ctx, day)
	if err != nil {
		return nil, err
	}
	return c.seal(sealer, day, messages)
}

var errOtherTable = invalid.Field("values", "of another table", "tables of the set")

// sealer returns a sealer for a day. It fetches the keys that the client does not have.
func (c *SetClient) sealer(ctx context.Context, day uint64) (*onion.SetSealer, error) {
	var sealers []*onion.Sealer
	for i, t := range c.set.Tasks {
		epoch, _ := c.set.At(i, day)
		lists, err := c.keysOf(ctx, c.set.Clock[i], epoch)
		if err != nil {
			return nil, err
		}
		sealer, err := onion.NewSealer(t, c.set.Tables[i].Task, lists[:t.VerifierHop()+1])
		if err != nil {
			return nil, err
		}
		sealers = append(sealers, sealer)
	}
	return onion.NewSetSealer(c.set.ID, sealers), nil
}

// seal seals a day's messages, by table.
func (c *SetClient) seal(sealer *onion.SetSealer, day uint64, messages []task.Message) (*Report, error) {
	slots := make([]onion.SetSlot, len(messages))
	for i, m := range messages {
		slots[i].Message = m
		slots[i].Epoch, _ = c.set.At(i, day)
	}
	body, err := sealer.Seal(day, slots)
	if err != nil {
		return nil, err
	}
	return &Report{Epoch: day, Body: body}, nil
}

// keysOf returns a clock's key lists with the keys of the block that contains an epoch.
func (c *SetClient) keysOf(ctx context.Context, clock int, epoch uint64) ([]*onion.SignedKeyList, error) {
	at := [2]uint64{uint64(clock), epoch / onion.BlockEpochs}
	c.mu.Lock()
	lists := c.keys[at]
	c.mu.Unlock()
	if lists != nil {
		return lists, nil
	}
	raw, err := fetchAll(ctx, c.options.HTTP, c.set.KeysURL(clock, at[1]), taskfile.MaxBundle)
	if err != nil {
		return nil, err
	}
	keys, err := tableset.ParseKeys(raw)
	if err != nil {
		return nil, err
	}
	if keys.First != at[1]*onion.BlockEpochs {
		return nil, fmt.Errorf("couldn't accept keys: of epochs from %d, want %d", keys.First, at[1]*onion.BlockEpochs)
	}
	if lists, err = c.set.Keys(clock, keys); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) >= mostKept {
		clear(c.keys)
	}
	c.keys[at] = lists
	return lists, nil
}

// Submit posts a submission to the first relay, as [Client.Submit] posts a report. If the first table has tokens, it
// gets one for a submission without one.
func (c *SetClient) Submit(ctx context.Context, r *Report) error {
	if c.poster.open.Clients.Kind == task.ClientToken && r.Token == nil {
		token, err := c.token(ctx, r.Epoch)
		if err != nil {
			return err
		}
		r.Token = token
	}
	return c.poster.retry(ctx, func() error { return c.poster.postTo(ctx, c.set.ReportsURL(r.Epoch), r) })
}

// token gets a token of the first table for a day.
func (c *SetClient) token(ctx context.Context, day uint64) ([]byte, error) {
	lists, err := c.keysOf(ctx, 0, day)
	if err != nil {
		return nil, err
	}
	t := c.set.Tasks[0]
	issuer := lists[t.VerifierHop()+1]
	ids, err := onion.IssuerKeys(t, issuer)
	if err != nil {
		return nil, err
	}
	open := *c.poster.open
	open.IssuerKeys, open.TokenKeys = issuer, ids
	first := *c.poster
	first.open = &open
	return first.Token(ctx, day)
}

// WithHeader returns a client of the same set that adds the given headers to its submissions.
func (c *SetClient) WithHeader(header http.Header) *SetClient {
	return &SetClient{options: c.options, set: c.set, mechanisms: c.mechanisms, usual: c.usual,
		poster: c.poster.WithHeader(header), keys: map[[2]uint64][]*onion.SignedKeyList{}}
}
