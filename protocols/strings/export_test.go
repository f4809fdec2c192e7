package strings

// Message encodes the number of a cell.
func (m *Mechanism) Message(cell uint64) []byte { return m.message(cell)[0][0] }

// Cell returns the number of the cell of a text in a table.
func (m *Mechanism) Cell(table int, text string) uint64 {
	padded, err := m.plan.pad([]byte(text))
	if err != nil {
		panic(err)
	}
	return m.plan.of(table, padded)
}

// Tables returns the numbers of levels and checks.
func (m *Mechanism) Tables() (levels, checks int) { return m.plan.levels, m.plan.checks }
