//go:build wasip1

package main

import (
	"runtime"

	"github.com/doona-dp/doona/wasm/internal/client"
)

// A call returns to the host before the garbage collector's own goroutine gets to run, and nothing else yields to it.
// Then a collection that it should finish stays open, and memory grows without bound (seen after 1.5 million
// reports).
func init() { client.Yield = runtime.Gosched }

// sealers holds the sealing half of the handles that open_bundle returned.
var sealers = map[uint32]*Sealed{}

// openBundle opens the bundle in the input and returns its handle.
//
//go:wasmexport open_bundle
func openBundle() int32 {
	s, err := OpenBundle(client.Argument())
	if err != nil {
		return client.Fail(err)
	}
	handle := client.Keep(s.Client)
	sealers[uint32(handle)] = s
	return handle
}

// submission randomizes the value in the input and leaves the body to post as the result.
//
//go:wasmexport submission
func submission(handle uint32, epoch uint64) int32 {
	s := sealers[handle]
	if s == nil {
		return client.Fail(client.ErrHandle)
	}
	body, err := s.Submission(epoch, client.Value(client.Argument()))
	if err != nil {
		return client.Fail(err)
	}
	return client.Result(body)
}
