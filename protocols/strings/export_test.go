package strings

// Message encodes the number of a cell.
func (m *Mechanism) Message(cell uint64) []byte { return m.message(cell)[0][0] }
