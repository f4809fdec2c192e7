package wasm_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wasm"
)

// TestAllocations checks doona.wasm's allocator. Allocations must be zeroed, aligned to 8 bytes and disjoint, at every
// size and however far memory must grow. An allocation above 1 GiB must stop the module.
func TestAllocations(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	module := start(t, wasm.Browser)
	memory := module.module.Memory()
	type allocation struct {
		at   uint32
		fill byte
		size int
	}
	var all []allocation
	sizes := []int{0, 1, 7, 8, 9, 1<<16 - 8, 1 << 16, 1<<16 + 8, 20 << 20}
	for range 2000 {
		sizes = append(sizes, r.IntN(1<<(1+r.IntN(16))))
	}
	for i, size := range sizes {
		a := allocation{uint32(module.export("input", uint64(size))), byte(1 + i%255), size}
		require.Zero(t, a.at%8)
		content, ok := memory.Read(a.at, uint32(size))
		require.True(t, ok)
		require.Equal(t, make([]byte, size), content)
		require.True(t, memory.Write(a.at, bytes.Repeat([]byte{a.fill}, size)))
		all = append(all, a)
	}
	for _, a := range all {
		content, ok := memory.Read(a.at, uint32(a.size))
		require.True(t, ok)
		require.Equal(t, bytes.Repeat([]byte{a.fill}, a.size), content)
	}
	_, err := module.module.ExportedFunction("input").Call(context.Background(), 1<<30+1)
	require.ErrorContains(t, err, "unreachable")
}
