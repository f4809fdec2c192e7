package issuer

import (
	"context"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
)

// A full disk must not keep an erasable key alive. So the issuer reserves space on each disk that it erases from, and
// releases the space when the disk is full: see [durable.Reserve]. Until the space is reserved again, the issuer counts
// no request and is not ready: what space remains is for erasing only.

// newReserve returns the reserve of disk space. In the store's folder it holds what erasing the counts and the keys
// needs; in each folder of keys, what erasing the keys needs.
func (i *Issuer) newReserve() (*durable.Reserve, error) {
	var files []string
	for _, s := range i.hosted().order {
		files = append(files, s.file)
	}
	keys := durable.KeyReserve(files...)
	r := &durable.Reserve{}
	if err := r.Add(storePath(i.cfg.Store), eraseSpace+keys); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := r.Add(file, keys); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// withReserve runs do, which erases something. If the disk is full, withReserve releases the reserved space and runs do
// again.
func (i *Issuer) withReserve(do func() error) error {
	return i.reserve.WithReserve(service.FullDisk, do)
}

// refill reserves missing space again, as far as the disk has it. It first empties the store's write-ahead log, which
// may have grown into the released space.
func (i *Issuer) refill(ctx context.Context) error {
	if i.reserve.Short() != nil {
		if err := i.withReserve(func() error { return i.store.scrub(ctx) }); err != nil {
			return err
		}
	}
	return i.reserve.Fill()
}

// recordFailure counts and logs a failed write. The issuer is not ready until it can write again.
func (i *Issuer) recordFailure(what string, err error) {
	i.failing.Store(true)
	i.metrics.Add(metricStoreErrors, 1)
	i.cfg.Log.Error(what, "error", err)
}

// canWrite returns an error if a disk is full, or if the last write failed and a new attempt fails, too. It makes this
// attempt itself: an issuer that is not ready gets no requests that would write.
func (i *Issuer) canWrite() error {
	if err := i.reserve.CheckSpace(); err != nil || !i.failing.Load() {
		return err
	}
	err := i.store.probe()
	i.failing.Store(err != nil)
	return err
}
