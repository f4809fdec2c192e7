package handout

import "github.com/doona-dp/doona/relay/internal/tasks"

// Fill reserves the memory of batches of a task until the limit. It returns the bytes reserved, and a function that
// releases them and returns what remains.
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

// HandoutBytes is the memory limit of all batches being sent.
const HandoutBytes = handoutBytes

// BytesOf returns how many bytes it takes to send one batch.
var BytesOf = handoutBytesOf
