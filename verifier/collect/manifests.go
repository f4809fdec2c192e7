package collect

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
)

// errEquivocation means that the last relay signed two different manifests for one batch number.
var errEquivocation = errors.New("the last relay signed two manifests for one batch number")

// keepManifest returns a function that stores the signed manifest of a batch in a file beside the batch's, and syncs
// it. The puller calls it before the first slot is read. If another manifest of the same batch number is stored
// already, it stores the new one too, as evidence, and returns errEquivocation.
func (d *folder) keepManifest(epoch, seq uint64) handover.ManifestRecorder {
	return func(signed *onion.SignedManifest) error {
		path := d.manifestPath(epoch, seq)
		first, err := readSigned(path)
		switch {
		case err != nil:
			return err
		case first == nil:
			return keepSigned(path, signed)
		case bytes.Equal(first.Manifest, signed.Manifest):
			return nil
		}
		second, err := readSigned(path + secondSuffix)
		if err == nil && second == nil {
			err = keepSigned(path+secondSuffix, signed)
		}
		if err != nil {
			return err
		}
		return errEquivocation
	}
}

// Suffixes of manifest files beside a batch's file: for the first manifest of a batch number, and for a second one.
const (
	manifestSuffix = ".manifest"
	secondSuffix   = ".second"
)

// manifestPath returns the path of the manifest file of a batch that is not stored, or not yet.
func (d *folder) manifestPath(epoch, seq uint64) string { return d.path(epoch, seq) + manifestSuffix }

// readSigned reads a signed manifest. It returns nil if the file does not exist.
func readSigned(path string) (*onion.SignedManifest, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read a kept manifest: %w", err)
	}
	s, err := onion.ParseSigned(raw)
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return s, nil
}

func keepSigned(path string, s *onion.SignedManifest) error {
	raw, err := s.Bytes()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("couldn't keep a manifest: %w", err)
	}
	return nil
}

// removeManifest removes the manifest file of a stored batch, whose own file has the manifest.
func (d *folder) removeManifest(epoch, seq uint64) {
	path := d.manifestPath(epoch, seq)
	if _, err := os.Stat(path + secondSuffix); errors.Is(err, fs.ErrNotExist) {
		os.Remove(path) // if this fails, the remaining file does no harm
	}
}

// contradiction describes how an epoch's signed end contradicts manifests that the same relay signed, or returns "". It
// compares totals only if all manifests are stored.
func (d *folder) contradiction(end *onion.End) (why string, err error) {
	if next, err := d.manifest(end.Epoch, end.Batches); err != nil {
		return "", err
	} else if next != nil {
		return fmt.Sprintf("the signed end of epoch %d announces %d batches, but batch %d was signed", end.Epoch, end.Batches,
			end.Batches), nil
	}
	var seen []onion.Manifest // not allocated in advance: the relay could claim a huge number
	for seq := range end.Batches {
		m, err := d.manifest(end.Epoch, seq)
		if err != nil {
			return "", err
		}
		if m == nil {
			return "", nil
		}
		seen = append(seen, *m)
	}
	if !end.MatchesBatches(seen) {
		return fmt.Sprintf("the signed end of epoch %d has other totals than its batches", end.Epoch), nil
	}
	return "", nil
}

// manifest returns the manifest that the last relay signed for a batch number, or nil if none is stored.
func (d *folder) manifest(epoch, seq uint64) (*onion.Manifest, error) {
	s, err := d.signed(epoch, seq)
	if s == nil || err != nil {
		return nil, err
	}
	var m onion.Manifest
	return &m, codec.Unmarshal(s.Manifest, &m)
}

// signed returns the signed manifest stored for a batch number; nil if there is none.
func (d *folder) signed(epoch, seq uint64) (*onion.SignedManifest, error) {
	s, err := readSigned(d.manifestPath(epoch, seq))
	if s != nil || err != nil {
		return s, err
	}
	file, err := os.Open(d.path(epoch, seq))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := onion.NewBatchReader(file, onion.MaxManifest(d.open.Task, d.open.VerifierHop()-1))
	if err != nil {
		return nil, err
	}
	return r.Signed(), nil
}

// historyDigest returns the digest of the epoch's batches before seq. It starts after the last one that is missing,
// damaged or equivocated.
func (d *folder) historyDigest(epoch, seq uint64, c *cursor) handover.HistoryDigest {
	var hashes handover.ManifestHashes
	for seq > 0 {
		seq--
		one, ok := c.hashes[seq]
		if !ok {
			if one = d.hashesOf(epoch, seq); one == nil {
				break
			}
			c.hashes[seq] = one
		}
		hashes = append(hashes, one...)
	}
	slices.Reverse(hashes)
	return hashes.History()
}

// hashesOf returns the manifest hashes of a batch, or nil if the batch is missing, damaged or equivocated.
func (d *folder) hashesOf(epoch, seq uint64) handover.ManifestHashes {
	if _, err := os.Stat(d.manifestPath(epoch, seq) + secondSuffix); err == nil {
		return nil
	}
	s, err := d.signed(epoch, seq)
	if s == nil || err != nil {
		return nil
	}
	return handover.HashManifests(s.Manifest)
}
