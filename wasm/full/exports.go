//go:build wasip1

package main

import "github.com/doona-dp/doona/wasm/internal/client"

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
