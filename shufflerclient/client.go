// Package shufflerclient is the Go client. It checks a task, randomizes a value once per epoch, seals the report in
// onion layers and submits it to the first relay.
//
//	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{Task: url, Owner: owner, MaxEpsilon: 10})
//	report, err := client.Report(epoch, []float64{12.5})   // randomized and sealed, once
//	err = client.Submit(ctx, report)                       // retries send the same bytes
//
// [Follow] does the same for a stream, from task to task.
//
// A Client keeps no state except in a [Ledger], if it has one: the privacy loss of a person over all tasks, and which
// epochs have a report. The ledger lives in a file or wherever the caller keeps it. The caller also does what the
// browser's SDK does by itself: keep a [Report], and never the value, until it is delivered, and choose the moment of
// sending at random before calling Report.
//
// The first relay sees that a client takes part: report in every epoch, with "nothing happened" as a value of the
// domain.
package shufflerclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// defaultMaxDelta is the default of [Options.MaxDelta]: the largest δ over all epochs of a task.
const defaultMaxDelta = 1e-3

// Options says which task a client reports to, and which privacy loss it accepts.
type Options struct {
	Task  string // URL of the task at the first relay: …/v1/tasks/ID. Required by [Connect].
	Owner string // "ed25519:…", the owner's public key. Required.
	// Largest ε over all epochs of the task together ([protocols.EpochsSpend]), above 0. Required without a Budget;
	// default with a Budget: +Inf.
	MaxEpsilon float64
	MaxDelta   float64 // Largest δ over all epochs together. Default 1e-3. Range (0, 1]; 1 means no limit.

	// Stream is for [Follow]: the URL of a stream at its first relay, …/v1/streams/ID with the id of its first task.
	// Allow names the parts of [Changeable] that later tasks may change, if the first task allows it, too. Default:
	// none.
	//
	// Recovery is a key, "ed25519:…", that may replace the owner's key or stop the stream. Default: none. Candidates
	// are keys of relays that you trust as much as the first task's relays. The owner may let one of them replace a
	// relay, if the first task allows that (relays.signKey). Default: none.
	Stream     string
	Allow      []string
	Recovery   string
	Candidates []string

	HTTP   HTTP        // Default: a client with a timeout of 30 s that follows no redirect. Required under GOOS=js.
	Header http.Header // Added to each submission, for example a proxy's Forwarded header.
	Pause  Pause       // Default: a timer.

	// Budget limits the privacy loss of all reports that Ledger records; the ledger must belong to one person.
	// Client.Report enters each report in the ledger before it returns the report, once per epoch. Otherwise it returns
	// [ErrReported] or [ErrBudget].
	Budget Budget
	Ledger Keeper

	// Usual is for [ConnectSet] with a Ledger: by the names of tables, what a table without events reports if there is
	// no other value.
	Usual map[string][]float64

	// Tokens sends a token request to the issuer, for tasks with tokens. The default, IssuerTokens(HTTP, nil), suits
	// issuers that give tokens to networks. If the issuer gives tokens to accounts, the site's backend must send the
	// request, with its API key and the account.
	Tokens TokenSource
}

// HTTP sends requests, as an [http.Client] does. It must not follow redirects: a redirect would tell another host who
// takes part.
type HTTP interface {
	Do(*http.Request) (*http.Response, error)
}

// Pause waits d between two attempts to submit. An error ends the attempts. A host without Go's timers, such as an edge
// worker, provides its own Pause.
type Pause func(ctx context.Context, d time.Duration) error

func pauseByTimer(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Client reports to one task. It is safe for concurrent use.
type Client struct {
	options   Options
	open      *taskfile.Open
	mechanism protocols.Mechanism
	sealer    *onion.Sealer
	issuer    *issuerKey // the issuer's key for the epoch of the latest token
	price     Price      // what the task's reports cost; only with a ledger
	line      string     // the ledger's entry for the reports: id of the task, or of the first task of its stream
	goesOn    bool       // the task is in a stream, so more epochs may follow the task's own
}

// Connect fetches the task from the first relay and checks it. It checks the id in the URL, the owner's signature and
// the key lists, and derives the claimed guarantee again from the parameters. The claim over all epochs must stay
// within MaxEpsilon and MaxDelta. Connect contacts only the first relay: a request to another relay would tell that
// relay who takes part. The client does not need the other relays' word, because each relay serves only tasks that its
// operator listed.
func Connect(ctx context.Context, o Options) (*Client, error) {
	if o.HTTP == nil {
		o.HTTP = defaultHTTP()
	}
	owner, err := taskfile.ParseKey("owner", o.Owner)
	if err != nil {
		return nil, err
	}
	open, err := fetchTask(ctx, o.HTTP, o.Task, func(open *taskfile.Open) error { return open.CheckOwner(owner) })
	if err != nil {
		return nil, err
	}
	return New(open, o)
}

// fetchTask fetches the task at a URL, with all its keys, and checks it and its id. It calls accept before it reads the
// keys.
func fetchTask(ctx context.Context, client HTTP, url string, accept func(*taskfile.Open) error) (
	*taskfile.Open, error) {
	body, err := fetch(ctx, client, url+endpoint.AllKeys)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	_, open, err := taskfile.ReadBundle(body, func(open *taskfile.Open) error {
		if !strings.HasSuffix(url, endpoint.PathOf(open.ID)) {
			return fmt.Errorf("couldn't accept the task: its id is %s", open.ID)
		}
		return accept(open)
	})
	return open, err
}

// New returns a client of a task that the caller has already opened. It checks the claim as [Connect] does.
func New(open *taskfile.Open, o Options) (*Client, error) { return newClient(open, o, open.ID, false) }

// newClient returns a client that enters its reports in the ledger line with the given id.
func newClient(open *taskfile.Open, o Options, line task.ID, goesOn bool) (*Client, error) {
	m, err := registry.Open(open.Task)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	if err := checkBudget(open, m, o); err != nil {
		return nil, err
	}
	sealer, err := onion.NewSealer(open.Task, open.ID, open.KeyLists)
	if err != nil {
		return nil, err
	}
	if o.HTTP == nil {
		o.HTTP = defaultHTTP()
	}
	if o.Pause == nil {
		o.Pause = pauseByTimer
	}
	if o.Tokens == nil {
		o.Tokens = IssuerTokens(o.HTTP, nil)
	}
	c := &Client{options: o, open: open, mechanism: m, sealer: sealer, issuer: &issuerKey{}, line: line.String(),
		goesOn: goesOn}
	if err := c.withBudget(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkBudget compares the cost of all reports of one client together with the options. It also limits δ, because a
// claim with a large δ can be true and worthless: a client that reveals its value with probability δ is (0, δ)-DP.
func checkBudget(open *taskfile.Open, m protocols.Mechanism, o Options) error {
	if o.MaxEpsilon == 0 && o.Ledger != nil {
		o.MaxEpsilon = math.Inf(1)
	}
	if !(o.MaxEpsilon > 0) {
		return invalid.Field("MaxEpsilon", fmt.Sprint(o.MaxEpsilon), "a number above 0")
	}
	if o.MaxDelta == 0 {
		o.MaxDelta = defaultMaxDelta
	}
	if !(o.MaxDelta > 0 && o.MaxDelta <= 1) {
		return invalid.Field("MaxDelta", fmt.Sprint(o.MaxDelta), "a number in (0, 1]")
	}
	n := open.MostCopies(open.Epochs.Count)
	fits := func(delta float64) bool { return delta <= o.MaxDelta || o.MaxDelta == 1 }
	if sum := protocols.AddedClaims(open.Claim, n); sum.Epsilon <= o.MaxEpsilon && fits(sum.Delta) {
		return nil // The sum already fits, so the slower composition (0.1 s) is not needed.
	}
	total, err := protocols.EpochsSpend(open.Task, m.Law, n)
	if err != nil {
		return err
	}
	if !(total.Epsilon <= o.MaxEpsilon) {
		return invalid.Field("MaxEpsilon", fmt.Sprint(o.MaxEpsilon),
			fmt.Sprintf("at least %s: epsilon %s in each of %d reports", decimal.Up(total.Epsilon, 6),
				open.Claim.Epsilon, n))
	}
	if !fits(total.Delta) {
		return invalid.Field("MaxDelta", fmt.Sprint(o.MaxDelta),
			fmt.Sprintf("at least %s: delta %s in each of %d reports", decimal.Format(total.Delta, -1),
				open.Claim.Delta, n))
	}
	return nil
}

// fetch requests a task or a stream from a relay. The caller reads and closes the body.
func fetch(ctx context.Context, client HTTP, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch the task: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("couldn't fetch the task: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, problem.Read(resp)
	}
	return resp.Body, nil
}

// WithHeader returns a client of the same task that adds the given headers to its submissions.
func (c *Client) WithHeader(header http.Header) *Client {
	other := *c
	other.options.Header = header
	return &other
}

// Task returns the checked task.
func (c *Client) Task() *taskfile.Open { return c.open }

// Report is one client's randomized and sealed report. Retries send the same bytes. It contains neither the value nor
// an unencrypted message.
type Report struct {
	Epoch uint64

	// Instead says why the report of a task with events holds the default in place of the value: [ErrAllowance], or
	// that the value was invalid. It tells something of the value, so it must not leave the device: JSON leaves it out.
	Instead error `json:"-"`
	Body    []byte
	Token   []byte // Only for tasks with tokens: the result of [Client.Token]. If nil, Submit gets a token.
}

// Report randomizes a value for an epoch and seals it. Call it once per client and epoch and keep the result: a
// second draw for the same value would weaken the guarantee. A value outside the task's domain is an error about
// "value", and costs no budget. For strings, protocols/strings.Value converts a text in Unicode normal form C to a
// value.
func (c *Client) Report(epoch uint64, value []float64) (*Report, error) {
	if !c.open.Epochs.Events.IsZero() {
		return c.reportEvent(epoch, value)
	}
	lanes, err := c.draw(value)
	if err != nil {
		return nil, err
	}
	body, err := c.sealer.Seal(epoch, lanes)
	if err != nil {
		return nil, err
	}
	if _, err := c.spend(epoch, false); err != nil { // If this fails, the randomized report is discarded unseen.
		return nil, err
	}
	return &Report{Epoch: epoch, Body: body}, nil
}

// reportEvent is [Client.Report] for a task with events. An invalid value, or an event beyond the allowance, becomes
// the default, because whether there is a report must not depend on values. An event is recorded durably before its
// report exists. So after a crash its allowance is used, whether or not it was sent.
func (c *Client) reportEvent(epoch uint64, value []float64) (*Report, error) {
	src, usual := randomizer.NewSource(), defaultMessage(c.open.Task)
	messages, instead := c.mechanism.Randomize(src, value) // Draws nothing: the message is the value's cell.
	if instead != nil {
		messages = usual
	}
	refused, err := c.spend(epoch, !bytes.Equal(messages[0][0], usual[0][0]))
	if err != nil {
		return nil, err
	}
	if refused != nil {
		messages, instead = usual, refused
	}
	lanes, err := protocols.Pad(c.open.Task, src, messages)
	if err != nil {
		return nil, err
	}
	body, err := c.sealer.Seal(epoch, lanes)
	if err != nil {
		return nil, err
	}
	return &Report{Epoch: epoch, Body: body, Instead: instead}, nil
}

// defaultMessage returns the message of a client without an event: the default's cell, big-endian.
func defaultMessage(t *task.Task) protocols.Messages {
	message := make([]byte, t.Slots.MessageBytes)
	for i, cell := len(message)-1, t.Epochs.Events.Default; i >= 0; i-- {
		message[i] = byte(cell)
		cell >>= 8
	}
	return protocols.Messages{{message}}
}

// draw randomizes a value. It returns the messages of the client's slots, lane by lane, in the order in which the
// client sends them.
func (c *Client) draw(value []float64) ([][]task.Message, error) {
	src := randomizer.NewSource()
	messages, err := c.mechanism.Randomize(src, value)
	if err != nil {
		return nil, err
	}
	return protocols.Pad(c.open.Task, src, messages)
}
