package verifier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/relay/handover"
)

// Puller takes a task's batches from its last relay. Every batch is kept in a folder as a .batch
// file before it is confirmed, because confirming deletes it at the relay; after a restart the
// folder is read first. A batch number stands for the same bytes for ever, so a pull that was cut
// short is simply repeated.
type Puller struct {
	verifier *Verifier
	client   *handover.Client
	dir      string
	log      *slog.Logger
	cursors  map[uint64]*cursor // By epoch.
}

// cursor is how far an epoch has been pulled.
type cursor struct {
	next     uint64            // Number of the next batch.
	complete bool              // There is no further batch.
	pending  map[uint64][]byte // Manifests of batches kept and not yet confirmed, by number.
}

// NewPuller returns a puller that keeps batches in dir, which it creates, and adds those that are
// there already.
func NewPuller(v *Verifier, client *handover.Client, dir string, log *slog.Logger) (*Puller, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't keep batches: %w", err)
	}
	p := &Puller{verifier: v, client: client, dir: dir, log: log, cursors: map[uint64]*cursor{}}
	return p, p.reload()
}

// reload adds the batches of an earlier run.
func (p *Puller) reload() error {
	for epoch := range p.verifier.open.Epochs.Count {
		c := &cursor{pending: map[uint64][]byte{}}
		p.cursors[epoch] = c
		for {
			raw, err := os.ReadFile(p.path(epoch, c.next))
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			if err != nil {
				return fmt.Errorf("couldn't read a kept batch: %w", err)
			}
			batch, err := onion.ParseBatch(raw)
			if err == nil {
				err = p.verifier.Add(batch)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.path(epoch, c.next), err)
			}
			c.pending[c.next] = batch.Manifest // the crash may have come before the confirmation
			c.next++
		}
	}
	return nil
}

func (p *Puller) path(epoch, seq uint64) string {
	return filepath.Join(p.dir, fmt.Sprintf("%06d-%06d.batch", epoch, seq))
}

// Run pulls every interval until ctx ends.
func (p *Puller) Run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := p.Pull(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("couldn't pull", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Pull takes all batches that are ready, of all epochs that have begun. Its error is that of the
// first epoch that failed; the others have been tried.
func (p *Puller) Pull(ctx context.Context) error {
	open := p.verifier.open
	now := uint64(time.Now().Unix())
	var failed error
	for epoch := range open.Epochs.Count {
		if open.Epochs.Start+epoch*open.Epochs.Length > now {
			break
		}
		c := p.cursors[epoch]
		if !c.complete {
			if err := p.pullEpoch(ctx, epoch, c); err != nil && failed == nil {
				failed = err
			}
		}
		if err := p.confirm(ctx, epoch, c); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// confirm lets the relay delete the batches that are kept.
func (p *Puller) confirm(ctx context.Context, epoch uint64, c *cursor) error {
	open := p.verifier.open
	for seq, manifest := range c.pending {
		err := p.client.Confirm(ctx, open, open.VerifierHop()-1, epoch, seq, manifest)
		if err != nil && !errors.Is(err, handover.ErrConfirmed) && !errors.Is(err, handover.ErrEpochComplete) {
			return err
		}
		delete(c.pending, seq)
	}
	return nil
}

func (p *Puller) pullEpoch(ctx context.Context, epoch uint64, c *cursor) error {
	for {
		err := p.pullOne(ctx, epoch, c)
		switch {
		case errors.Is(err, handover.ErrNotSealed):
			return nil
		case errors.Is(err, handover.ErrEpochComplete):
			c.complete = true
			return nil
		case errors.Is(err, handover.ErrConfirmed):
			p.verifier.Note("missing", fmt.Sprintf("epoch %d, batch %d was confirmed before, and is not in %s", epoch, c.next, p.dir))
		case err != nil:
			return err
		}
		c.next++
	}
}

// pullOne keeps and adds the next batch of an epoch. A batch that fails its checks is the last relay's
// fault, and final: it is noted, not kept and not confirmed.
func (p *Puller) pullOne(ctx context.Context, epoch uint64, c *cursor) error {
	open, seq := p.verifier.open, c.next
	last := open.VerifierHop() - 1
	batch, err := p.client.Pull(ctx, open, last, epoch, seq)
	if err != nil {
		return err
	}
	if _, err := batch.Check(open.Task, onion.Context{TaskID: open.ID, Epoch: epoch, Hop: last}, seq); err != nil {
		p.verifier.Note("refused", err.Error())
		return nil
	}
	if err := p.keep(batch, epoch, seq); err != nil {
		return err
	}
	if err := p.verifier.Add(batch); err != nil {
		return err
	}
	c.pending[seq] = batch.Manifest
	return nil
}

// keep writes a batch durably.
func (p *Puller) keep(batch *onion.Batch, epoch, seq uint64) error {
	raw, err := batch.Bytes()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(p.path(epoch, seq), raw, 0o600); err != nil {
		return fmt.Errorf("couldn't keep batch %d of epoch %d: %w", seq, epoch, err)
	}
	return nil
}
