package relay

import "github.com/doona-dp/doona/randomizer"

// shuffle permutes s uniformly by Fisher and Yates' algorithm. Every call should have a source of
// its own, from [randomizer.NewSource], which is keyed by the operating system.
func shuffle[T any](src *randomizer.Source, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := src.Below(uint64(i) + 1)
		s[i], s[j] = s[j], s[i]
	}
}
