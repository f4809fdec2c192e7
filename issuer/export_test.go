package issuer

import (
	"crypto/sha256"

	"github.com/doona-dp/doona/internal/secret"
)

// CountsKey returns the key for an epoch's hashes, derived from a private exponent.
func CountsKey(exponent []byte) []byte {
	counts := make([]byte, sha256.Size)
	countsKey(counts, exponent)
	return counts
}

// Named returns the hash of an account or a request under a hash key.
func Named(counts []byte, kind string, of []byte) ([]byte, error) {
	name, err := (&epochKey{counts: secret.Own(counts)}).name(kind, of)
	return name[:], err
}

// Hashes returns a function that hashes an account with the key for an epoch of the issuer's first task, as a running
// request does.
func Hashes(i *Issuer, epoch uint64) func() error {
	key, err := i.hosted().order[0].epochKey(epoch)
	return func() error {
		if err == nil {
			_, err = key.name("account", []byte("somebody"))
		}
		return err
	}
}

// EraseKey erases the key of an epoch of the issuer's first task.
func EraseKey(i *Issuer, epoch uint64) error { return i.hosted().order[0].eraseKey(epoch) }

// BreakMarks makes every write to the issuer's marks fail, like a broken disk, until the caller calls repair.
func BreakMarks(i *Issuer) (repair func() error) {
	for _, b := range i.store.bindings {
		b.mark.Close()
	}
	return func() (err error) {
		for _, s := range i.hosted().order {
			if i.store.bindings[s.ID].mark, err = s.open(); err != nil {
				return err
			}
		}
		return nil
	}
}

// Groups returns how many groups of requests for the issuer's first task the store has committed.
func Groups(i *Issuer) uint64 { return i.store.bindings[i.hosted().order[0].ID].Commits }

// Patterns lists the path patterns that an issuer answers.
func Patterns(i *Issuer) []string { return i.mux().Patterns }

// Quota returns how many tokens an account may get for an epoch of the issuer's first task.
func Quota(i *Issuer, epoch uint64, account string) (int, error) {
	s := i.hosted().order[0]
	key, err := s.epochKey(epoch)
	if err != nil {
		return 0, err
	}
	return i.quota(key, []byte(account), s.quota)
}
