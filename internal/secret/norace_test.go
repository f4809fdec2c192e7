//go:build !race

package secret_test

// raceBuild says whether the race detector is on. It makes a [sync.Pool] drop values at random.
const raceBuild = false
