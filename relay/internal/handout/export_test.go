package handout

import "github.com/doona-dp/doona/relay/internal/tasks"

// Fill takes handouts of a task until the limit. It returns how many bytes they use, and a function that frees them.
func Fill(s *tasks.Hosted) (bytes int64, free func() (left int64)) {
	var h handouts
	n := 0
	for h.take(s) {
		n++
	}
	return h.bytes, func() int64 {
		for range n {
			h.leave(s)
		}
		return h.bytes
	}
}

// HandoutBytes is the common limit of all handouts.
const HandoutBytes = handoutBytes

// BytesOf returns the memory of one handout.
var BytesOf = handoutBytesOf
