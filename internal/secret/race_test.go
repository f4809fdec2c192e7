//go:build race

package secret_test

// raceBuild reports whether the race detector is on. With it, a [sync.Pool] drops values at random.
const raceBuild = true
