package relay

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestShuffleVectors: a relay permutes as docs/SPEC.md says, by the vectors that a client's order of
// slots has to meet too.
func TestShuffleVectors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "testdata", "v"+strconv.Itoa(task.Version), "randomizer.json"))
	require.NoError(t, err)
	var vectors []struct {
		Sampler, N, Bytes, Result string
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	met := 0
	for _, v := range vectors {
		if v.Sampler != "shuffle" {
			continue
		}
		given, err := hex.DecodeString(v.Bytes)
		require.NoError(t, err)
		n, err := strconv.Atoi(v.N)
		require.NoError(t, err)
		order := make([]string, n)
		for i := range order {
			order[i] = strconv.Itoa(i)
		}
		shuffle(randomizer.NewSourceFrom(func(p []byte) { copy(p, given) }), order)
		require.Equal(t, v.Result, strings.Join(order, " "))
		met++
	}
	require.Equal(t, 7, met)
}
