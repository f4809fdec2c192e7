package handout

import "github.com/doona-dp/doona/relay/internal/tasks"

// Fill takes all places for batches of a task on their way out, and returns how many bytes they take, and what gives
// the places back.
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

// HandoutBytes is what batches on their way out take at most.
const HandoutBytes = handoutBytes

// BytesOf returns what one of a task takes.
var BytesOf = handoutBytesOf
