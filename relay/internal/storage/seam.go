package storage

import (
	"net/http"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// Seam lets the relay's own test suites, which are separate packages, change a relay before it runs. No program sets
// one. A nil field changes nothing.
type Seam struct {
	Store     func(*store.Store, *Stores)                // Replaces the stages' stores
	Transport func(http.RoundTripper) http.RoundTripper  // wraps the transport of requests to upstream relays
	Task      func(*task.Task)                           // changes the relay's own copy of each task
	Draw      func(*randomizer.Source) ([]uint64, error) // draws the dummies of the first task
}
