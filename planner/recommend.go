package planner

import "slices"

// RecommendedError is how many times the least error of all ways noise by relays may have to be recommended. A factor
// of 2 is the price of a guarantee that needs one honest relay and no honest client.
const RecommendedError = 2

// recommend moves the best way with noise by relays to the front, unless its error exceeds [RecommendedError] times the
// least error. The ways must be sorted by error.
func recommend(ways []Way) {
	i := slices.IndexFunc(ways, func(w Way) bool { return w.Why == nil && w.Noise == NoiseRelays })
	if i <= 0 || ways[i].RMSE > RecommendedError*ways[0].RMSE {
		return
	}
	best := ways[i]
	copy(ways[1:i+1], ways[:i])
	ways[0] = best
}

// LeastError returns the possible way with the least error, or nil if none is possible.
func LeastError(ways []Way) (least *Way) {
	for i := range ways {
		if w := &ways[i]; w.Why == nil && (least == nil || compareWays(*w, *least) < 0) {
			least = w
		}
	}
	return least
}
