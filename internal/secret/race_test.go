//go:build race

package secret_test

// raceBuild says whether the race detector is on, under which a [sync.Pool] drops what it is given now and then.
const raceBuild = true
