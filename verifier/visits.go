package verifier

// CountVisits makes the task's reports say what share of the visits it counts. visits returns the number of reports, by
// the start of an epoch, of a task without a cap whose epochs are as long, and to which every visitor reports. Call it
// before the first report. Its number of reports tells nothing new: participation is public.
func (v *Verifier) CountVisits(visits func() (map[int64]uint64, error)) { v.visits = visits }

// ReportsByStart returns the number of reports in each epoch with a batch, by the epoch's start in Unix seconds. For a
// table of a set it is the number of submissions, which count visits whether or not they had a report for the table.
func (v *Verifier) ReportsByStart() (map[int64]uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[int64]uint64{}
	for number, e := range v.epochs {
		if err := v.adder.addUp(e); err != nil {
			return nil, err
		}
		n := e.total.counts.Users
		if maySkip(v.open.Task) && e.total.counts.Batches > 0 {
			n += e.total.counts.Covers
		}
		if n > 0 {
			out[epochStart(v.open.Task, number).Unix()] = n
		}
	}
	return out, nil
}

// setVisits sets how many of the visits a report counts. visits has their number by the start of the epoch.
func (r *Report) setVisits(visits map[int64]uint64) {
	for _, e := range r.Ledger.Epochs {
		if all := visits[e.Start.Unix()]; all > 0 && e.Users > 0 {
			r.Visits, r.CountedVisits = r.Visits+all, r.CountedVisits+e.Users
		}
	}
}
