package figures

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
)

// Erratum is a claim in a paper that is wrong or loose, with a program that shows it.
type Erratum struct {
	Name  string // Used in commands. Required.
	Where string // Paper, and position in the paper. Required.
	Claim string // The claim as printed. Required.
	Truth string // What is true instead, and why. Required.
	Slow  bool   // The program takes more than a second.

	// show computes the evidence and returns it in sentences. holds is true if the evidence shows that Claim is as
	// wrong as Truth says.
	show func() (evidence string, holds bool)
}

// ErrNotShown means that an erratum's program did not show the printed claim to be wrong or loose.
var ErrNotShown = errors.New("the counter-example does not hold")

// Show runs the erratum's program and returns its evidence. The error wraps ErrNotShown if the evidence does not show
// what the erratum says.
func (e *Erratum) Show() (string, error) {
	evidence, holds := e.show()
	if !holds {
		return evidence, fmt.Errorf("erratum %s: %w: %s", e.Name, ErrNotShown, evidence)
	}
	return evidence, nil
}

// Errata returns all errata in the order of docs/errata.md.
func Errata() []Erratum {
	return slices.Concat(bbgn19Errata(), gkmps21Errata(), scm21Errata(), bbgn19bErrata(), afnntz24Errata())
}

// FindErrata returns the errata with the given names, or all errata without names.
func FindErrata(names []string) (out []Erratum, err error) {
	var all []string
	for _, e := range Errata() {
		all = append(all, e.Name)
		if len(names) == 0 || slices.Contains(names, e.Name) {
			out = append(out, e)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, invalid.Field("erratum", name, "one of "+strings.Join(all, ", "))
		}
	}
	return out, nil
}

// WriteErrata runs the programs of all errata and writes errata.md below dir. It calls done after each erratum.
func WriteErrata(dir string, done func()) error {
	var doc strings.Builder
	doc.WriteString(errataHead)
	for _, e := range Errata() {
		evidence, err := e.Show()
		if err != nil {
			return err
		}
		e.write(&doc, evidence)
		done()
	}
	return write(dir, "errata.md", []byte(doc.String()))
}

const errataHead = `# What is wrong or loose in the papers and in public code

This page is for readers and authors of the papers that Doona implements. ` + "`make figures`" + ` writes it. Each entry says what is printed, what is true, and which command shows the error. The command exits 0 only if the entry still holds. ` +
	"`make errata`" + ` runs all of these commands, and so do the tests.

The papers' short names:

* [BBGN19](https://arxiv.org/abs/1903.02837)
* [BBGN19b](https://arxiv.org/abs/1906.09116)
* [GKMPS21](https://arxiv.org/abs/2109.13158)
* [SCM21](https://arxiv.org/abs/2112.05464)
* [AFNNTZ24](https://arxiv.org/abs/2404.10201)

Lemmas are numbered as in the versions at these links. The authors may have corrected some errors since.
`

// write writes the erratum's section of errata.md.
func (e *Erratum) write(doc *strings.Builder, evidence string) {
	fmt.Fprintf(doc, "\n## %s\n\n**Where**: %s.\n\n**Printed**: %s\n\n**True**: %s\n\n**Shown by** `make errata ARGS=%s`:\n\n"+
		"> %s\n", e.Name, e.Where, e.Claim, e.Truth, e.Name, evidence)
}
