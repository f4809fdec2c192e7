package edge

// Jobs returns the number of jobs in progress and their bytes.
func (w *Worker) Jobs() (jobs, bytes int) {
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	return len(w.load.jobs), w.load.bytes
}

// Fill adds jobs up to the limit, until empty is called.
func (w *Worker) Fill() (empty func()) {
	var all []*job
	for {
		j, err := w.load.begin("")
		if err != nil {
			return func() {
				for _, j := range all {
					w.load.end(j)
				}
			}
		}
		all = append(all, j)
	}
}

// FillBytes reserves all bytes except free, until empty is called.
func (w *Worker) FillBytes(free int) (empty func()) {
	j, err := w.load.begin("")
	if err == nil {
		err = w.load.hold(j, maxHeld-free)
	}
	if err != nil {
		panic(err)
	}
	return func() { w.load.end(j) }
}
