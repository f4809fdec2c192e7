package handover

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// KeysFor asks a relay that has approved the owner for its key list for the task that the label names: a signed list of
// count keys. The Requester's key must be the owner's.
func (c *Requester) KeysFor(ctx context.Context, relay task.Party, label taskfile.Label, kem task.KEM, count uint64) (
	*onion.SignedKeyList, error) {
	signature := Signed(c.key, signing.Owner, OwnersKeysBody(relay.SignKey, label, kem, count))
	raw, err := c.keys(ctx, taskfile.OwnersKeysURL(relay, c.public(), label, kem, count), signature, kem, count)
	if err != nil {
		return nil, fmt.Errorf("couldn't get keys of relay %s: %w", relay.URL, err)
	}
	list, err := onion.ParseKeyList(raw)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", relay.URL, err)
	}
	return list, nil
}

// Begin sends a task to a relay that has approved the owner and made keys for the task. The Requester's key must be the
// owner's. Sending the same task again succeeds.
func (c *Requester) Begin(ctx context.Context, relay task.Party, bundle []byte) error {
	header := http.Header{Header: {Signed(c.key, signing.Owner, OwnersTaskBody(relay.SignKey))}}
	resp, err := c.send(ctx, http.MethodPost, taskfile.OwnersTasksURL(relay, c.public()), header,
		bytes.NewReader(bundle))
	if err != nil {
		return fmt.Errorf("couldn't hand the task to relay %s: %w", relay.URL, err)
	}
	return resp.Body.Close()
}

// BeginSet is Begin for a set and its tables, in the form of [tableset.Handed]. The relay must have made the keys of
// each clock of the set.
func (c *Requester) BeginSet(ctx context.Context, relay task.Party, handed []byte) error {
	header := http.Header{Header: {Signed(c.key, signing.Owner, OwnersTaskBody(relay.SignKey))}}
	resp, err := c.send(ctx, http.MethodPost, tableset.OwnersURL(relay, c.public()), header, bytes.NewReader(handed))
	if err != nil {
		return fmt.Errorf("couldn't hand the set to relay %s: %w", relay.URL, err)
	}
	return resp.Body.Close()
}

// Withdraw withdraws a task, or a stream by its first task, at a relay that has it from an approved owner. The
// Requester's key must sign the task or stream now. Repeating it succeeds.
func (c *Requester) Withdraw(ctx context.Context, relay task.Party, id task.ID) error {
	header := http.Header{Header: {Signed(c.key, signing.Withdraw, WithdrawBody(relay.SignKey, id))}}
	resp, err := c.send(ctx, http.MethodPost, taskfile.WithdrawURL(relay, c.public(), id), header, nil)
	if err != nil {
		return fmt.Errorf("couldn't withdraw the task at relay %s: %w", relay.URL, err)
	}
	return resp.Body.Close()
}

// WithdrawBody returns what an owner signs to withdraw a task, before the nonce: the relay's key ‖ the task's id. A
// withdrawal holds permanently, so repeating it does no harm.
func WithdrawBody(relay task.SignKey, id task.ID) []byte { return append(relay[:], id[:]...) }

func (c *Requester) public() task.SignKey { return task.SignKey(c.key.Public().(ed25519.PublicKey)) }

// OwnersTaskBody returns what an owner signs to send a task or a set to a relay, before the nonce: the relay's key. So
// the relay cannot forward the request to another relay.
func OwnersTaskBody(relay task.SignKey) []byte { return relay[:] }

// OwnersKeysBody returns what an owner signs to ask a relay for keys, before the nonce: the relay's key ‖ label ‖
// number of epochs ‖ KEM.
func OwnersKeysBody(relay task.SignKey, label taskfile.Label, kem task.KEM, count uint64) []byte {
	return append(binary.BigEndian.AppendUint64(append(relay[:], label[:]...), count), kem...)
}
