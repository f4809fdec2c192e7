// Package figures computes the figures of the papers that this module builds on, next to the module's own figures,
// and the errors it found in the papers.
//
// A figure is a table of numbers: its CSV file. Its picture and the text of docs/reproduction.md are made from that
// file alone, so that a reader has the data behind each claim. An erratum is a printed claim with the truth, and a
// program that shows it.
//
// All random draws come from a generator with a fixed seed, so that the same files result on every amd64 machine.
// Other machines may round other digits, because they fuse multiplications with additions.
package figures

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
)

// Figure is one picture and the numbers it shows.
type Figure struct {
	Name    string  // Name of its files, without extension. Required.
	Paper   string  // Key of a [Paper], or Ours. Required.
	What    string  // Name in the paper, such as "Figure 3 (i)"; empty for a figure that is not in the paper.
	Title   string  // Title above the picture. Required.
	Caption string  // Explains the picture to readers who do not know the paper. Required.
	X, Y    string  // Labels of the axes. Required.
	LinearX bool    // Otherwise logarithmic.
	LinearY bool    // Otherwise logarithmic.
	Slopes  []Slope // Growth of the series in theory.
	Slow    bool    // Takes more than a second or two even in a quick run.

	compute func(quick bool) (*Table, error)
}

// Slope is an exponent b of y ~ x^b that theory gives for a series, to compare with the fitted one.
type Slope struct {
	Series   string
	From, To float64 // Range of x to fit; 0 for no bound.
	Theory   float64
	Why      string // Reason if the fit is further than 0.15 from the theory, else empty.
}

// All returns the figures in the order of the document.
func All() []Figure {
	return slices.Concat(bbgn19Figures(), gkmps21Figures(), scm21Figures(), bbgn19bFigures(), afnntz24Figures(),
		ourFigures())
}

// Named returns the figures of the given names, all for none.
func Named(names []string) (out []Figure, err error) {
	for _, f := range All() {
		if len(names) == 0 || slices.Contains(names, f.Name) {
			out = append(out, f)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(out, func(f Figure) bool { return f.Name == name }) {
			return nil, invalid.Field("figure", name, "one of "+strings.Join(figureNames(), ", "))
		}
	}
	return out, nil
}

func figureNames() (names []string) {
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}

// Folder is the folder of the figures, below that of the documents.
const Folder = "figures"

// Compute computes the figure and writes its table and picture below dir.
func (f *Figure) Compute(dir string) error { return f.computeTo(dir, false) }

// ComputeQuick is Compute with fewer points and repetitions.
func (f *Figure) ComputeQuick(dir string) error { return f.computeTo(dir, true) }

func (f *Figure) computeTo(dir string, quick bool) error {
	table, err := f.compute(quick)
	if err != nil {
		return fmt.Errorf("couldn't compute figure %s: %w", f.Name, err)
	}
	csv, err := table.encode()
	if err != nil {
		return fmt.Errorf("couldn't write figure %s: %w", f.Name, err)
	}
	if err := write(dir, filepath.Join(Folder, f.Name+".csv"), csv); err != nil {
		return err
	}
	return f.Draw(dir)
}

// Draw draws the picture from the table below dir.
func (f *Figure) Draw(dir string) error {
	table, err := f.Read(dir)
	if err != nil {
		return err
	}
	return write(dir, filepath.Join(Folder, f.Name+".svg"), f.picture(table))
}

// Read returns the table below dir.
func (f *Figure) Read(dir string) (*Table, error) {
	text, err := os.ReadFile(filepath.Join(dir, Folder, f.Name+".csv"))
	if err != nil {
		return nil, fmt.Errorf("couldn't read figure %s: %w", f.Name, err)
	}
	table, err := decodeTable(text)
	if err != nil {
		return nil, fmt.Errorf("couldn't read figure %s: %w", f.Name, err)
	}
	return table, nil
}

// picture returns the figure as SVG. Measured series are dots.
func (f *Figure) picture(t *Table) []byte {
	plot := display.Plot{Title: f.Title, XLabel: f.X, YLabel: f.Y, Note: f.Caption, LogX: !f.LinearX, LogY: !f.LinearY}
	for _, name := range t.Series {
		plot.Lines = append(plot.Lines, display.Line{Name: name, Points: t.Points(name), Dots: Measured(name)})
	}
	var out bytes.Buffer
	plot.SVG(&out)
	return out.Bytes()
}

// Measured reports whether the series of this name was measured in runs of the protocol.
func Measured(series string) bool { return strings.HasSuffix(series, "measured") }

// write writes a file below dir, and creates its folders.
func write(dir, name string, text []byte) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("couldn't make a folder: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("couldn't write a figure: %w", err)
	}
	return nil
}
