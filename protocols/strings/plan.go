package strings

// FoundDownTo returns how many clients a text must have to be listed in about 98 of 100 full batches, of which so many
// relays add their dummies: [Found.Least] where all other clients have texts of their own.
func (m *Mechanism) FoundDownTo(relays int) float64 {
	a := m.newAggregate()
	all := m.task.Batch.Size
	if m.task.Noise != nil {
		a.AddDummies(uint64(relays), uint64(relays)*m.task.Noise.Pool)
		all += a.dummies
	}
	cells, rest := uint64(len(a.counts)), uint64(0)
	for y := range a.counts {
		rest += all % cells
		a.counts[y] = all/cells + rest/cells
		rest %= cells
	}
	s := newSearch(a)
	return s.leastClients(s.least(), s.needed())
}

// CountVariance returns the variance of the count of a listed text that so many clients of a full batch have, whose
// checks no other listed text shares. With C checks a client's message is in one of the text's with probability
// w = C(1−γ)/T, and those of the n others and of D′ relays' M dummies with C/(Tb) each:
//
//	(clients·w(1−w) + (n − clients + D′M)·C/(Tb)) / w²
func (m *Mechanism) CountVariance(clients float64, relays int) float64 {
	checks := float64(m.plan.checks)
	others := max(0, float64(m.task.Batch.Size)-clients)
	if m.task.Noise != nil {
		others += float64(relays) * float64(m.task.Noise.Pool)
	}
	w := checks / m.unit()
	return (clients*w*(1-w) + others*checks/float64(m.plan.cells())) / (w * w)
}

// Reach returns the most by which a malicious client moves the count of a text: a message in one of its checks, where
// one of its clients sends there with the probability w of [Mechanism.CountVariance].
func (m *Mechanism) Reach() float64 { return m.unit() / float64(m.plan.checks) }
