// Package figures computes the figures of the papers that this module builds on, next to the module's own figures,
// and the errors it found in the papers.
//
// A figure is a table of numbers, stored as a CSV file. The figure's picture and the text of docs/reproduction.md are
// made from that file alone, so readers have the data behind each claim. An erratum is a wrong or loose claim of a
// paper, with the truth and a program that shows it.
//
// All random draws come from generators with fixed seeds, so every amd64 machine computes the same files. Processors
// that fuse multiplications with additions may round differently.
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
	LinearX bool    // The x axis is linear; default: logarithmic.
	LinearY bool    // The y axis is linear; default: logarithmic.
	Slopes  []Slope // Exponents that theory gives for series.
	Slow    bool    // Takes more than a second or two even in a quick run.

	compute func(quick bool) (*Table, error)
}

// Slope is the exponent b in y ~ x^b that theory gives for a series, to compare with the exponent fitted to the data.
type Slope struct {
	Series   string
	From, To float64 // Range of x to fit; 0 for no bound.
	Theory   float64
	Why      string // Reason if the fitted exponent differs from Theory by more than 0.15, else empty.
}

// All returns the figures in the order of docs/reproduction.md.
func All() []Figure {
	return slices.Concat(bbgn19Figures(), gkmps21Figures(), scm21Figures(), bbgn19bFigures(), afnntz24Figures(),
		ourFigures())
}

// Named returns the figures with the given names, or all figures without names.
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

// Folder is the name of the figures' folder inside the folder of the documents.
const Folder = "figures"

// Compute computes the figure and writes its CSV file and its picture below dir.
func (f *Figure) Compute(dir string) error { return f.computeTo(dir, false) }

// ComputeQuick does the same as Compute, with fewer points and repetitions.
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

// Draw reads the figure's CSV file below dir and writes the picture next to it.
func (f *Figure) Draw(dir string) error {
	table, err := f.Read(dir)
	if err != nil {
		return err
	}
	return write(dir, filepath.Join(Folder, f.Name+".svg"), f.picture(table))
}

// Read reads the figure's table from its CSV file below dir.
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

// picture returns the figure as SVG. It draws measured series as dots, other series as lines.
func (f *Figure) picture(t *Table) []byte {
	plot := display.Plot{Title: f.Title, XLabel: f.X, YLabel: f.Y, Note: f.Caption, LogX: !f.LinearX, LogY: !f.LinearY}
	for _, name := range t.Series {
		plot.Lines = append(plot.Lines, display.Line{Name: name, Points: t.Points(name), Dots: Measured(name)})
	}
	var out bytes.Buffer
	plot.SVG(&out)
	return out.Bytes()
}

// Measured reports whether a series was measured in runs of the protocol: its name ends in "measured".
func Measured(series string) bool { return strings.HasSuffix(series, "measured") }

// write writes a file below dir, and creates missing folders.
func write(dir, name string, text []byte) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("couldn't make the folder of %s: %w", path, err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("couldn't write %s: %w", path, err)
	}
	return nil
}
