package taskstream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/taskfile"
)

// TestErasBuyNoKeysWithoutEnd: whoever has the recovery key chooses era numbers. Whatever the number, the folder must
// make keys for a limited number of epoch counts.
func TestErasBuyNoKeysWithoutEnd(t *testing.T) {
	for era, want := range map[uint64]int{0: 4, 1: 8, 15: 64, 16: 64, 1<<63 - 1: 64, 1<<64 - 1: 64} {
		f := &Folder{authority: taskfile.Authority{Era: era}}
		require.Equal(t, want, f.mostCounts(), era)
	}
}
