package verifier

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/verifier/finding"
)

// Position is where a finding occurred. Positions are ordered: a finding keeps the lowest as its example.
type Position struct {
	Epoch, Seq uint64 // both math.MaxUint64 if the finding is about no batch
	Text       string
}

// noPosition returns the position of a finding that is about no batch.
func noPosition(text string) Position { return Position{math.MaxUint64, math.MaxUint64, text} }

// BatchPosition returns the position of a batch.
func BatchPosition(epoch, seq uint64) Position {
	return Position{epoch, seq, fmt.Sprintf("epoch %d, batch %d", epoch, seq)}
}

// Because appends a reason to the position's text.
func (p Position) Because(err error) Position {
	p.Text += ": " + err.Error()
	return p
}

func (p Position) compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Seq, o.Seq), strings.Compare(p.Text, o.Text))
}

// findings counts findings by name. The result does not depend on the order in which they are added.
type findings map[finding.Name]*found

type found struct {
	count    uint64
	first    Position
	evidence []finding.Evidence
}

func (f findings) add(name finding.Name, n uint64, at Position) *found {
	one := f[name]
	if one == nil {
		one = &found{first: at}
		f[name] = one
	}
	one.count += n
	if at.compare(one.first) < 0 {
		one.first = at
	}
	return one
}

func (f findings) merge(other findings) {
	for name, o := range other {
		one := f.add(name, o.count, o.first)
		one.evidence = append(one.evidence, o.evidence...)
	}
}

// list returns the findings, sorted by name.
func (f findings) list() []finding.Finding {
	out := []finding.Finding{}
	for name, one := range f {
		out = append(out, finding.Finding{Name: name, Count: one.count, Meaning: name.Meaning(),
			Example: display.Plain(one.first.Text), Evidence: one.evidence})
	}
	slices.SortFunc(out, func(a, b finding.Finding) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

// notes returns the findings in their stored form, sorted by name.
func (f findings) notes() []finding.Note {
	out := []finding.Note{}
	for name, one := range f {
		out = append(out, finding.Note{Name: string(name), Count: one.count, Epoch: one.first.Epoch,
			Seq: one.first.Seq, Text: one.first.Text})
	}
	slices.SortFunc(out, func(a, b finding.Note) int { return strings.Compare(a.Name, b.Name) })
	return out
}
