package server

import (
	"maps"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// visits returns the number of reports, by the start of an epoch, of a configured task and its later tasks.
func (s *Server) visits(file string) (map[int64]uint64, error) {
	out := map[int64]uint64{}
	for _, t := range s.hostedTasks() {
		if t.config.File != file {
			continue
		}
		reports, err := t.verifier.ReportsByStart()
		if err != nil {
			return nil, err
		}
		maps.Copy(out, reports)
	}
	return out, nil
}

// checkVisits checks the tasks that count others' visits: each is listed, has no cap, and has the same epochs.
func (s *Server) checkVisits() error {
	for _, t := range s.tasks {
		if t.config.Visits == "" {
			continue
		}
		var counts *hostedTask
		for _, other := range s.tasks {
			if other.config.File == t.config.Visits {
				counts = other
			}
		}
		e := t.open.Epochs
		switch {
		case e.Cap.IsZero():
			return invalid.Field("visits", t.config.Visits, "none for a task without a cap, which counts every visit")
		case counts == nil:
			return invalid.Field("visits", t.config.Visits, "the file of a task in tasks")
		case !counts.open.Epochs.Cap.IsZero():
			return invalid.Field("visits", t.config.Visits, "a task without a cap")
		case counts.open.Epochs.Length != e.Length || !continues(e, int64(counts.open.Epochs.Start)):
			return invalid.Field("visits", t.config.Visits, "a task with the same epochs")
		}
	}
	return nil
}

// continues reports whether an epoch begins at a time, if epochs go on before the first and after the last.
func continues(e task.Epochs, at int64) bool {
	start := int64(e.Start)
	return e.Length.Add(start, e.Length.Between(start, at)) == at
}
