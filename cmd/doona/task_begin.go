package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// begin asks the relays without a key list for their keys, writes the signed task, and sends it to these relays. The
// first relay gets it last, because clients find the task there. If the file already has the task, begin only sends it.
func (f *taskFlags) begin(ctx context.Context, t *task.Task, lists []*onion.SignedKeyList, key ed25519.PrivateKey) (
	*taskfile.Bundle, error) {
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return nil, err
	}
	var asked []int
	for hop := range t.Relays {
		if lists[hop] == nil {
			asked = append(asked, hop)
		}
	}
	owner := handover.NewRequester(key, transport)
	bundle, err := f.written(t, asked, task.SignKey(key.Public().(ed25519.PublicKey)))
	if errors.Is(err, fs.ErrNotExist) {
		label := taskfile.LabelOf(t)
		for _, hop := range asked {
			if lists[hop], err = owner.KeysFor(ctx, t.Relays[hop], label, t.KEM, t.Epochs.Count); err != nil {
				return nil, err
			}
			t.Relays[hop].KeyList = lists[hop].Hash()
		}
		bundle, err = f.write(t, lists, key)
	}
	if err != nil {
		return nil, err
	}
	raw, err := bundle.Bytes()
	if err != nil {
		return nil, err
	}
	for _, hop := range slices.Backward(asked) {
		if err := owner.Begin(ctx, t.Relays[hop], raw); err != nil {
			return nil, fmt.Errorf("%w (%s has the signed task: run the command again to send it)", err, f.out)
		}
	}
	return bundle, nil
}

// written reads the task that the file already has. It copies to t the keys of the asked relays, and the start unless
// --start is given. If the task in the file still differs from t, it returns an error.
func (f *taskFlags) written(t *task.Task, asked []int, owner task.SignKey) (*taskfile.Bundle, error) {
	raw, err := taskfile.ReadFile(f.out)
	if err != nil {
		return nil, err
	}
	other := fmt.Errorf("%s exists and holds another task: name another file", f.out)
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, other
	}
	open, err := bundle.Open(&owner)
	if err != nil || len(open.Relays) != len(t.Relays) {
		return nil, other
	}
	for _, hop := range asked {
		t.Relays[hop].KeyList = open.Relays[hop].KeyList
	}
	if f.start == "" {
		t.Epochs.Start = open.Epochs.Start
	}
	if !bytes.Equal(t.Canonical(), open.Canonical()) {
		return nil, other
	}
	return bundle, nil
}
