package handover

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// RelayStream is a stream as one relay serves it, after all checks.
type RelayStream struct {
	Tasks      []*taskfile.Open // By position, without key lists: [Requester.BundleOf] fetches them.
	Statements taskfile.Statements
	Authority  taskfile.Authority
}

// Stream fetches the stream that begins with root from root's relays. It checks the position and the owner of every
// task.
func (c *Requester) Stream(ctx context.Context, root *taskfile.Open, trust taskfile.Trust) (*RelayStream, error) {
	return c.StreamOf(ctx, root, root.Task, trust)
}

// StreamOf asks the relays of t, a later task of the stream, and the relays that the newest tasks in their answers
// name. It returns the best stream among the answers: one relay may serve an outdated stream, and another relay may
// have replaced it. If no relay serves the stream, the error joins the errors of all relays.
func (c *Requester) StreamOf(ctx context.Context, root *taskfile.Open, t *task.Task, trust taskfile.Trust) (
	*RelayStream, error) {
	all := c.askAll(ctx, root, relaysOf(t), trust)
	if best := bestOf(all); best != nil {
		return best.RelayStream, nil
	}
	return nil, failed(all)
}

// BundleOf fetches a task's bundle from the first of its relays that serves it, and checks the bundle with its key
// lists.
func (c *Requester) BundleOf(ctx context.Context, t *taskfile.Open) ([]byte, *taskfile.Open, error) {
	var errs []error
	for _, p := range relaysOf(t.Task) {
		raw, open, err := c.Bundle(ctx, t.ID, p)
		if err == nil {
			return raw, open, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, errors.Join(errs...)
}

// StreamAt fetches the stream that begins with root from the relay at a hop of t. t is a task of the stream, and a
// later task may have a newer address of the relay. With an error, StreamAt still returns the Authority of the served
// stream, if it could parse the answer.
func (c *Requester) StreamAt(ctx context.Context, root *taskfile.Open, t *task.Task, hop int, trust taskfile.Trust) (
	*RelayStream, error) {
	resp, err := c.ask(ctx, http.MethodGet, root.StreamURL(t, hop), "")
	if err != nil {
		return &RelayStream{}, fmt.Errorf("couldn't fetch the stream of relay %s: %w", t.Relays[hop].URL, err)
	}
	defer resp.Body.Close()
	chain, err := taskfile.ReadChain(resp.Body, trust.Root)
	if err != nil {
		return &RelayStream{}, fmt.Errorf("relay %s: %w", t.Relays[hop].URL, err)
	}
	tasks, authority, err := chain.Open(trust)
	if err != nil {
		return &RelayStream{Authority: authority}, fmt.Errorf("couldn't accept the stream of relay %s: %w",
			t.Relays[hop].URL, err)
	}
	return &RelayStream{tasks, chain.Statements, authority}, nil
}

// Bundle fetches a task's bundle from a relay, and checks that the task in it has this id.
func (c *Requester) Bundle(ctx context.Context, id task.ID, from StreamRelay) ([]byte, *taskfile.Open, error) {
	resp, err := c.ask(ctx, http.MethodGet, from.URL()+endpoint.PathOf(id)+endpoint.AllKeys, "")
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't fetch the task: %w", err)
	}
	defer resp.Body.Close()
	raw, open, err := taskfile.ReadBundle(resp.Body, func(open *taskfile.Open) error {
		if open.ID != id {
			return invalid.Field("task", open.ID.String(), id.String()+", as was asked for")
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("relay %s: %w", from.URL(), err)
	}
	return raw, open, nil
}

// NextKeys asks a relay for its key list for the next task of a stream: a signed list of count keys. The relay is the
// one at a hop of last, the stream's newest task. The Requester's key must be the owner's. A relay answers a repeated
// request with the same list.
func (c *Requester) NextKeys(ctx context.Context, root *taskfile.Open, last *task.Task, hop int, count uint64) (
	*onion.SignedKeyList, error) {
	position := last.Stream.Position + 1
	signature := Signed(c.key, signing.Succeed, NextKeysBody(root.ID, position, count))
	raw, err := c.keys(ctx, root.NextKeysURL(last, hop, position, count), signature, last.KEM, count)
	if errors.Is(err, problem.New(problem.WrongPosition, "")) {
		return nil, fmt.Errorf("relay %s already has a task at this position, which the first relay lacks; hand over the "+
			"file of that task: %w", last.Relays[hop].URL, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't get the keys of relay %s: %w", last.Relays[hop].URL, err)
	}
	list, err := onion.ParseKeyList(raw)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", last.Relays[hop].URL, err)
	}
	return list, nil
}

// keys fetches a signed list with count keys. It reads at most three bytes more than such a list has.
func (c *Requester) keys(ctx context.Context, url, signature string, kem task.KEM, count uint64) ([]byte, error) {
	most := uint64(taskfile.MaxBundle)
	if list, keys, err := onion.KeySizes(kem, count); err == nil { // else the relay answers with a problem
		most = min(most, list+5+keys)
	}
	return c.small(ctx, url, signature, int64(most))
}

// Renewal holds the owner's choices for the next task of a stream. Everything else is copied from the newest task.
type Renewal struct {
	Count uint64    // Number of epochs, 1 to 65536.
	Now   time.Time // If the newest task is over, the next task starts with the epoch that contains this time.
	// Key lists of Count epochs that Renew does not request: the verifier's, and the issuer's for a task with tokens.
	Verifier, Issuer *onion.SignedKeyList
	Recovery         task.SignKey       // The stream's recovery key; zero for none.
	Rotations        []task.Rotation    // Replaced keys of parties of the newest task.
	Replace          map[int]task.Party // Replacement relays, by hop: address and key.
	Newest           *taskfile.Open     // A later task whose relays Renew also asks; may be nil.
	Change           func(*task.Task)   // Changes parts that the stream allows to change; may be nil.
}

// Renew returns the signed next task of a stream, which starts when the newest task ends. It asks all relays of the
// stream for their tasks, and the relays of the next task for their keys. Renew does not send the next task to any
// relay; [Requester.Succeed] does. The Requester's key must be the owner's.
func (c *Requester) Renew(ctx context.Context, root *taskfile.Open, r Renewal) (*taskfile.Bundle, error) {
	all := c.askAll(ctx, root, known(root, r.Newest), root.Trust(r.Recovery))
	served := bestOf(all)
	if served == nil {
		return nil, failed(all)
	}
	if own := task.SignKey(c.key.Public().(ed25519.PublicKey)); served.Authority.Stopped ||
		own != served.Authority.Key {
		return nil, invalid.Field("owner-key", taskfile.FormatKey(own), "the key that signs the stream's tasks now")
	}
	last := served.newest()
	next := r.follow(last)
	if err := served.fits(next); err != nil { // before the relays make keys for it
		return nil, err
	}
	var lists []*onion.SignedKeyList
	for hop := range next.Relays {
		list, err := c.NextKeys(ctx, root, r.replaced(last.Task), hop, r.Count)
		if err != nil {
			return nil, err
		}
		next.Relays[hop].KeyList = list.Hash()
		lists = append(lists, list)
	}
	next.Verifier.KeyList = r.Verifier.Hash()
	lists = append(lists, r.Verifier)
	if r.Issuer != nil {
		next.Clients.Issuer.KeyList = r.Issuer.Hash()
		lists = append(lists, r.Issuer)
	}
	bundle, err := taskfile.Sign(next, c.key, lists)
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(nil)
	if err != nil {
		return nil, err
	}
	return bundle, root.CheckSuccessor(served.Authority, last, open, root.Trust(r.Recovery))
}

// fits returns an error if the next task is too large, or would make the stream too large.
func (s *RelayStream) fits(next *task.Task) error {
	all := make([]*task.Task, 0, len(s.Tasks)+1)
	for _, t := range s.Tasks {
		all = append(all, t.Task)
	}
	return errors.Join(taskfile.CheckSize(next), taskfile.CheckStreamSize(append(all, next)))
}

// follow returns the draft of the task after last. It still has last's key lists.
func (r Renewal) follow(last *taskfile.Open) *task.Task {
	next := *last.Task
	next.Stream = &task.StreamPosition{Name: last.Stream.Name, Position: last.Stream.Position + 1, Before: last.ID,
		Allow: last.Stream.Allow, Rotations: append(slices.Clone(last.Stream.Rotations), r.Rotations...)}
	next.Relays = r.replaced(last.Task).Relays
	for hop := range next.Relays {
		next.Relays[hop].SignKey = next.Stream.Now(next.Relays[hop].SignKey)
	}
	next.Verifier.SignKey = next.Stream.Now(last.Verifier.SignKey)
	next.Clients.Issuer.SignKey = next.Stream.Now(last.Clients.Issuer.SignKey)
	next.Epochs.Start, next.Epochs.Count = last.Epochs.Over(), r.Count
	if late := next.Epochs.Length.Between(int64(next.Epochs.Start), r.Now.Unix()); late > 0 {
		next.Epochs.Start = next.Epochs.Begin(uint64(late))
	}
	if r.Change != nil {
		r.Change(&next)
	}
	return &next
}

// replaced returns the task with its replacement relays. Their key lists are still those of the replaced relays.
func (r Renewal) replaced(t *task.Task) *task.Task {
	out := *t
	out.Relays = slices.Clone(t.Relays)
	for hop, party := range r.Replace {
		out.Relays[hop].URL, out.Relays[hop].SignKey = party.URL, party.SignKey
	}
	return &out
}

// Succeed sends next, the new task of a stream, to the relay at a hop of next. The Requester's key must be the owner's.
// Sending the same task again succeeds.
func (c *Requester) Succeed(ctx context.Context, root *taskfile.Open, next *task.Task, hop int, bundle []byte) error {
	url := root.SuccessorsURL(next, hop)
	header := http.Header{Header: {Signed(c.key, signing.Succeed, SuccessorBody(root.ID))}}
	resp, err := c.send(ctx, http.MethodPost, url, header, bytes.NewReader(bundle))
	if err != nil {
		return fmt.Errorf("couldn't hand the task to relay %s: %w", next.Relays[hop].URL, err)
	}
	return resp.Body.Close()
}

// State sends a signed statement about a stream to the relay at a hop of t, the stream's newest task. Sending the same
// statement again succeeds.
func (c *Requester) State(ctx context.Context, root *taskfile.Open, t *task.Task, hop int, statement []byte) error {
	resp, err := c.send(ctx, http.MethodPost, root.StatementsURL(t, hop), http.Header{}, bytes.NewReader(statement))
	if err != nil {
		return fmt.Errorf("couldn't hand the statement to relay %s: %w", t.Relays[hop].URL, err)
	}
	return resp.Body.Close()
}
