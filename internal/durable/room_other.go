//go:build !linux

package durable

// Room returns zeros: this system's sizes are not read.
func Room(string) (size, free uint64, err error) { return 0, 0, nil }
