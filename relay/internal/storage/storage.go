// Package storage passes a relay's store to its stages: each has a small interface of it. The relay's own test suites
// replace some of them.
package storage

import (
	"github.com/doona-dp/doona/relay/internal/epochs"
	"github.com/doona-dp/doona/relay/internal/handout"
	"github.com/doona-dp/doona/relay/internal/ingress"
	"github.com/doona-dp/doona/relay/internal/mixing"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// Stores holds each stage's store. All are one [store.Store].
type Stores struct {
	Tasks    tasks.Store
	Ingress  ingress.Store
	Seals    mixing.SealStore
	Mixes    mixing.Store
	Confirms mixing.ConfirmStore
	Epochs   epochs.Store
	Whole    epochs.WholeStore
	Handout  handout.Store
}

// New returns a store as the stages have it.
func New(s *store.Store) Stores {
	return Stores{Tasks: s, Ingress: s, Seals: s, Mixes: s, Confirms: s, Epochs: s, Whole: s, Handout: s}
}
