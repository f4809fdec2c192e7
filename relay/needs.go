package relay

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/handover"
)

// TaskNeed is the most memory and disk that one full batch of a task needs at this relay.
type TaskNeed struct {
	Task string `json:"task"` // id, lower-case hex
	handover.Need

	// Further is the memory, in bytes, for each report of an epoch beyond the reports that Need counts. It is above 0
	// only at a first relay with an SQLite store, which keeps report names in memory, and only if the task does not
	// limit the batches of an epoch.
	Further float64 `json:"memory_of_further_report"`
}

// String describes the need in words.
func (n TaskNeed) String() string {
	if n.Further == 0 {
		return n.Need.String()
	}
	further := handover.Need{Memory: n.Further}
	memory, _, _ := further.Words()
	return n.Need.String() + ", and " + memory + " of memory for each further report of its epoch"
}

// BatchNeeds returns what one full batch of each task needs. It returns an error if the disk of an SQLite store is too
// small.
func (i *Inspected) BatchNeeds() (out []TaskNeed, err error) {
	for _, s := range i.Hosted().Order {
		needs, err := handover.Needs(s.Task, handover.FullLoad(s.Task))
		if err != nil {
			return nil, err
		}
		need := needs[s.Hop]
		if path, ok := strings.CutPrefix(i.cfg.Store, service.SchemeSQLite); ok {
			size, _, err := durable.DiskSpace(filepath.Dir(path))
			if err != nil {
				return nil, fmt.Errorf("couldn't read the size of the store's disk: %w", err)
			}
			if size > 0 && need.Disk > float64(size) {
				return nil, invalid.Field("store", path,
					fmt.Sprintf("on a larger disk: a full batch of task %q takes up to %s",
						s.Name, need))
			}
		}
		further := 0.
		if strings.HasPrefix(i.cfg.Store, service.SchemeSQLite) && s.Hop == 0 && !s.SaysBatches() {
			further = handover.KnownMemory
		}
		out = append(out, TaskNeed{s.ID.String(), need, further})
	}
	return out, nil
}
