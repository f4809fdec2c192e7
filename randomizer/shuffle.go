package randomizer

// Shuffle permutes s in place with the Fisher-Yates algorithm: every order has probability 1/len(s)!. It consumes
// exactly the draws of Below(i+1) for i = len(s)-1 down to 1.
func Shuffle[T any](src *Source, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := src.Below(uint64(i) + 1)
		s[i], s[j] = s[j], s[i]
	}
}
