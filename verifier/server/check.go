package server

import "github.com/doona-dp/doona/internal/display"

// Checked is what [Check] found.
type Checked struct {
	Tasks    []CheckedTask `json:"tasks"`
	Warnings []string      `json:"warnings"`
}

// CheckedTask is a task that the configuration names, or a later task of its stream.
type CheckedTask struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Check makes the checks of [New] that need neither the folder of batches nor the ledger. So it may run beside a
// server. It changes nothing, but closes files of keys to their group, as New does.
func Check(cfg Config) (*Checked, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := newServer(cfg)
	if err := s.loadConfigured(); err != nil {
		return nil, err
	}
	out := &Checked{Tasks: []CheckedTask{}, Warnings: []string{}}
	for _, t := range s.tasks {
		out.Tasks = append(out.Tasks, CheckedTask{t.open.ID.String(), t.open.Name})
	}
	for _, t := range cfg.Tasks {
		if t.Owner == "" {
			out.Warnings = append(out.Warnings, display.Plain(t.File)+": no owner: anyone may have signed the task")
		}
	}
	if s.isOpen() {
		out.Warnings = append(out.Warnings, "listen "+s.pagesAddress()+": "+openPages+": "+closePages)
	}
	return out, nil
}
