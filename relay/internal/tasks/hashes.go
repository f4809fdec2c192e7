package tasks

import (
	"slices"
	"sync"

	"github.com/doona-dp/doona/wire/handover"
)

// ManifestHashes caches the hashes of an epoch's manifests, 32 bytes each. Manifests never change, so a pull reads only
// one manifest from the store instead of all previous ones. The zero value is an empty cache.
type ManifestHashes struct {
	mu     sync.Mutex // guards epochs
	epochs map[uint64]handover.ManifestHashes
}

// Below returns the hashes of all manifests below seq. It always reads the last manifest, and reads it first, because
// the store may no longer have it.
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

func (h *ManifestHashes) learn(epoch uint64, hashes handover.ManifestHashes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epochs == nil {
		h.epochs = map[uint64]handover.ManifestHashes{}
	}
	if len(hashes) > len(h.epochs[epoch]) {
		h.epochs[epoch] = hashes
	}
}

// Forget removes an epoch from the cache.
func (h *ManifestHashes) Forget(epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.epochs, epoch)
}
