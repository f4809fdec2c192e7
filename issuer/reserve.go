package issuer

import (
	"context"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
)

// A full disk must keep no key alive. So the issuer keeps room for erasing on the disks that it erases from, and gives
// it back where one is full: see [durable.Reserve]. Until it has been able to take it again it counts no request, and
// is not ready: what is left is for erasing alone.

// keepRoom says how much is kept where: in the folder of the store what that needs; in this one and those of keys what
// these need.
func (i *Issuer) keepRoom() (*durable.Reserve, error) {
	var files []string
	for _, s := range i.hosted().order {
		files = append(files, s.file)
	}
	keys := durable.KeyRoom(files...)
	r := &durable.Reserve{}
	if err := r.Keep(storePath(i.cfg.Store), eraseRoom+keys); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := r.Keep(file, keys); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// spare does what erases, if need be with the room that is kept for it.
func (i *Issuer) withReserve(do func() error) error {
	return i.reserve.WithReserve(service.FullDisk, do)
}

// refill takes what is kept, as far as there is room again. The store's log takes some of it.
func (i *Issuer) refill(ctx context.Context) error {
	if i.reserve.Short() != nil {
		if err := i.withReserve(func() error { return i.store.scrub(ctx) }); err != nil {
			return err
		}
	}
	return i.reserve.Take()
}

// failed counts and logs an error of what the issuer writes: it is not ready until it can write again.
func (i *Issuer) failed(what string, err error) {
	i.failing.Store(true)
	i.metrics.Add(metricStoreErrors, 1)
	i.cfg.Log.Error(what, "error", err)
}

// canWrite is an error where a disk is full, or was, and what the store needs cannot be written yet. That is tried
// again here, as nobody asks an issuer that is not ready.
func (i *Issuer) canWrite() error {
	if err := i.reserve.HasRoom(); err != nil || !i.failing.Load() {
		return err
	}
	err := i.store.probe()
	i.failing.Store(err != nil)
	return err
}
