package tasks

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastChange: a folder that has just changed must seem to change all the time, because it may change once more at
// the same time.
func TestLastChange(t *testing.T) {
	p := &ownerFolder{t.TempDir()}
	at := func(since time.Duration) {
		moment := time.Now().Add(since)
		require.NoError(t, os.Chtimes(p.path, moment, moment))
	}
	at(0)
	require.NotEqual(t, p.lastChange(), p.lastChange())
	at(time.Hour)
	require.NotEqual(t, p.lastChange(), p.lastChange())
	at(-time.Minute)
	require.Equal(t, p.lastChange(), p.lastChange())
	p.path += "/none"
	require.NotEqual(t, p.lastChange(), p.lastChange())
}
