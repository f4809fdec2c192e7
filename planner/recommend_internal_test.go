package planner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecommendationHasALimit: noise by relays is not recommended with more than [RecommendedError] times the least
// error.
func TestRecommendationHasALimit(t *testing.T) {
	for relays, first := range map[float64]Noise{RecommendedError: NoiseRelays, RecommendedError + .01: NoiseClients} {
		ways := []Way{{Noise: NoiseClients, RMSE: 1}, {Noise: NoiseClients, RMSE: 1.5},
			{Noise: NoiseRelays, RMSE: relays}}
		recommend(ways)
		require.Equal(t, first, ways[0].Noise)
		require.Len(t, ways, 3)
	}
}
