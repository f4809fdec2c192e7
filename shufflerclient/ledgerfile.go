//go:build !js

package shufflerclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/doona-dp/doona/internal/durable"
)

// LedgerFile returns a keeper that stores the ledger in a file, which the first update creates. Each update replaces
// the file atomically; the new content is on disk when Update returns. A lock file keeps other processes out.
func LedgerFile(path string) Keeper { return ledgerFile(path) }

type ledgerFile string

func (f ledgerFile) Update(change func(*Ledger) error) error {
	unlock, err := durable.Lock(string(f))
	if err != nil {
		return fmt.Errorf("couldn't lock the ledger: %w", err)
	}
	defer unlock()
	ledger, err := f.read()
	if err != nil {
		return err
	}
	if err := change(ledger); err != nil {
		return err
	}
	raw, err := json.Marshal(ledger)
	if err != nil {
		return fmt.Errorf("couldn't write the ledger: %w", err)
	}
	if err := durable.WriteFile(string(f), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("couldn't write the ledger: %w", err)
	}
	return nil
}

// read returns the ledger. A file that exists and cannot be read is an error, not an empty ledger.
func (f ledgerFile) read() (*Ledger, error) {
	raw, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return &Ledger{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the ledger: %w", err)
	}
	ledger := &Ledger{}
	if err := json.Unmarshal(raw, ledger); err != nil {
		return nil, fmt.Errorf("couldn't read the ledger %s: %w", f, err)
	}
	return ledger, ledger.check()
}
