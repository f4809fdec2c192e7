//go:build wasip1

package main

import (
	"runtime"

	"github.com/doona-dp/doona/wasm/internal/client"
)

// init lets the garbage collector's goroutine run before each call. Otherwise a call returns to the host before that
// goroutine runs, and a collection that it should finish never ends. Memory then grows without bound (seen after 1.5
// million reports).
func init() { client.Yield = runtime.Gosched }

// sealers holds, by handle, the tasks that openBundle opened.
var sealers = map[uint32]*Sealed{}

// openBundle opens the bundle in the call's argument and returns its handle, or [client.Failed].
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

// submission randomizes the value in the call's argument, which follows the given number of tags. Its result is the
// HTTP body to post to the first relay.
//
//go:wasmexport submission
func submission(handle uint32, epoch uint64, tags uint32) int32 {
	s := sealers[handle]
	if s == nil {
		return client.Fail(client.ErrHandle)
	}
	given, value, err := CutTags(client.Argument(), int(tags))
	if err != nil {
		return client.Fail(err)
	}
	body, err := s.Submission(epoch, client.Value(value), given...)
	if err != nil {
		return client.Fail(err)
	}
	return client.Result(body)
}
