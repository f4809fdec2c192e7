package verifier_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/verifier/finding"
)

// TestMemoryOfAManifest: a file that claims a huge unsigned manifest must not take more memory than the task's real
// manifests.
func TestMemoryOfAManifest(t *testing.T) {
	const claim = 64 << 20
	v := newVerifier(t, newCascade(t))
	head := binary.BigEndian.AppendUint32([]byte{0x94, 0xc6}, claim)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := v.AddFile("x", io.MultiReader(bytes.NewReader(head), io.LimitReader(zeroes{}, claim)))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	findings := v.Findings()
	require.Len(t, findings, 1)
	require.Equal(t, finding.Foreign, findings[0].Name)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(claim/8))
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
