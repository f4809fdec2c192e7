package tasks

import (
	"slices"
	"sync"

	"github.com/doona-dp/doona/wire/handover"
)

// ManifestHashes remembers the hashes of an epoch's manifests, which never change, so that a pull costs one look at the
// store and not one for each number before: 32 bytes for each. The zero value has seen none.
type ManifestHashes struct {
	mu     sync.Mutex // guards epochs
	epochs map[uint64]handover.ManifestHashes
}

// Below returns those of all numbers below seq. That of the last is read every time, and first: it may not be there.
func (h *ManifestHashes) Below(epoch, seq uint64, manifest func(seq uint64) ([]byte, error)) (
	handover.ManifestHashes, error) {
	if seq == 0 {
		return nil, nil
	}
	last, err := manifest(seq - 1)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	known := h.epochs[epoch]
	h.mu.Unlock()
	out := slices.Clone(known[:min(uint64(len(known)), seq-1)])
	for next := uint64(len(out)); next < seq-1; next++ {
		one, err := manifest(next)
		if err != nil {
			return nil, err
		}
		out = append(out, handover.HashManifests(one)...)
	}
	out = append(out, handover.HashManifests(last)...)
	h.learn(epoch, out)
	return out, nil
}

func (h *ManifestHashes) learn(epoch uint64, had handover.ManifestHashes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epochs == nil {
		h.epochs = map[uint64]handover.ManifestHashes{}
	}
	if len(had) > len(h.epochs[epoch]) {
		h.epochs[epoch] = had
	}
}

// Forget lets go of an epoch.
func (h *ManifestHashes) Forget(epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.epochs, epoch)
}
