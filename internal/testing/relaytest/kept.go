package relaytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kept holds copies of a relay's files, by name.
type Kept map[string][]byte

// KeptParts lists the parts of a relay's state and the files of each part.
var KeptParts = map[string][]string{
	"store":  {"relay.db", "relay.db-wal"},
	"secret": {"relay.secret"},
	"keys":   {"task0.keys"},
}

// KeptOf copies parts of a relay's state into memory.
func KeptOf(t testing.TB, c *Cascade, hop int, parts ...string) Kept {
	t.Helper()
	out := Kept{}
	for _, part := range parts {
		for _, name := range KeptParts[part] {
			in, err := os.ReadFile(filepath.Join(filepath.Dir(c.RelayConfig(hop+1)), name))
			if err == nil || !os.IsNotExist(err) {
				require.NoError(t, err)
				out[name] = in
			}
		}
	}
	return out
}

// Restore writes copied parts of a relay's state back, as a restored backup would.
func (k Kept) Restore(t testing.TB, c *Cascade, hop int, parts ...string) {
	t.Helper()
	folder := filepath.Dir(c.RelayConfig(hop + 1))
	for _, part := range parts {
		for _, name := range KeptParts[part] {
			path := filepath.Join(folder, name)
			if in, ok := k[name]; ok {
				require.NoError(t, os.WriteFile(path, in, 0o600))
			} else {
				os.Remove(path)
			}
		}
		if part == "store" {
			os.Remove(filepath.Join(folder, "relay.db-shm"))
		}
	}
}
