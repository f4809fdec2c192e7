package taskstream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/taskfile"
)

// TestErasBuyNoKeysWithoutEnd: who may begin eras names the number of one, whatever it is: keys are made for so many
// numbers of epochs and no more.
func TestErasBuyNoKeysWithoutEnd(t *testing.T) {
	for era, want := range map[uint64]int{0: 4, 1: 8, 15: 64, 16: 64, 1<<63 - 1: 64, 1<<64 - 1: 64} {
		f := &Folder{authority: taskfile.Authority{Era: era}}
		require.Equal(t, want, f.mostCounts(), era)
	}
}
