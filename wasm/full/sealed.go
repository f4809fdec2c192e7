package main

import (
	"errors"

	"github.com/doona-dp/doona/wasm/internal/client"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Sealed converts values to sealed submissions for one task.
type Sealed struct {
	*client.Client
	sealer *onion.Sealer
}

// bundleOffset is where the bundle begins in the argument of open_bundle: owner's key (32 bytes) ‖ task id (32 bytes) ‖
// bundle.
const bundleOffset = 64

// OpenBundle opens owner's key ‖ task id ‖ bundle. It checks the owner's signature, the id, the key lists and the
// claimed (ε, δ).
func OpenBundle(argument []byte) (*Sealed, error) {
	if len(argument) < bundleOffset {
		return nil, errors.New("couldn't open the bundle: truncated")
	}
	bundle, err := taskfile.ParseBundle(argument[bundleOffset:])
	if err != nil {
		return nil, err
	}
	owner := task.SignKey(argument)
	open, err := bundle.OpenBlock(&owner)
	if err != nil {
		return nil, err
	}
	if open.ID != task.ID(argument[32:]) {
		return nil, errors.New("couldn't accept the task: its hash is not the requested task id")
	}
	c, err := client.Open(bundle.Task)
	if err != nil {
		return nil, err
	}
	sealer, err := onion.NewSealer(open.Task, open.ID, open.KeyLists)
	return &Sealed{c, sealer}, err
}

// Submission randomizes and seals a value and returns the HTTP body to post. Per epoch, the caller must post one result
// at most. The drafts of one report share their tags; without tags, every layer has a random one.
func (s *Sealed) Submission(epoch uint64, value []float64, tags ...[onion.TagSize]byte) ([]byte, error) {
	slots, err := s.Slots(value)
	if err != nil {
		return nil, err
	}
	defer client.Forget(slots)
	return s.sealer.Seal(epoch, slots, tags...)
}

// CutTags cuts a number of tags from the beginning of an argument. It returns nil tags for none.
func CutTags(argument []byte, number int) (tags [][onion.TagSize]byte, rest []byte, err error) {
	if len(argument)/onion.TagSize < number {
		return nil, nil, errors.New("couldn't read the tags: truncated")
	}
	for ; number > 0; number-- {
		tags, argument = append(tags, [onion.TagSize]byte(argument)), argument[onion.TagSize:]
	}
	return tags, argument, nil
}
