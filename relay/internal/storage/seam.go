package storage

import (
	"net/http"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/task"
)

// Seam is where the relay's own suites, which stand beside it as packages, reach into a relay that is made and does
// not run yet. No program sets one. What is nil changes nothing.
type Seam struct {
	Store     func(*store.Store, *Stores)                // Changes what the stages have for a store.
	Transport func(http.RoundTripper) http.RoundTripper  // Carries what the relay asks those before it.
	Task      func(*task.Task)                           // Changes the relay's own copy of each task.
	Draw      func(*randomizer.Source) ([]uint64, error) // Draws the dummies of the first task.
}
