package crosstab

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"

	"github.com/doona-dp/doona/internal/invalid"
)

// Limits of a table's description.
const (
	MaxCells      = 100_000
	maxDimensions = 8
	maxShapeBytes = 8 << 20
	maxNameBytes  = 100
)

// Shape is the dimensions of a table. Cell c_1·s_2·…·s_d + … + c_d has index c_i in dimension i, of size s_i: the last
// dimension's index changes first.
type Shape struct {
	Dimensions []Dimension `yaml:"dimensions"`
}

// Dimension is a list of categories, or the edges of intervals of a number. Interval i reaches from edge i to below
// edge i+1. The first edge may be −∞ and the last +∞ (in YAML -.inf and .inf).
type Dimension struct {
	Name       string    `yaml:"name"`
	Categories []string  `yaml:"categories"`
	Edges      []float64 `yaml:"edges"`
	Unit       string    `yaml:"unit"`
}

// Where has, for some dimensions, the values of which a cell has one. For a dimension with edges, a value is a range
// such as 0..2500, 4000.. or ..2500, whose ends are edges.
type Where map[string][]string

// ReadShape reads a table's description in YAML or JSON. Unknown fields are errors.
func ReadShape(in io.Reader) (*Shape, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxShapeBytes+1))
	if err != nil {
		return nil, fmt.Errorf("couldn't read the table's dimensions: %w", err)
	}
	if len(text) > maxShapeBytes {
		return nil, invalid.Field("dimensions", "a file of more than 8 MB", "at most 8 MB")
	}
	var s Shape
	if err := yaml.UnmarshalWithOptions(text, &s, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("couldn't read the table's dimensions: %w", err)
	}
	return &s, s.check()
}

func (s *Shape) check() error {
	if n := len(s.Dimensions); n < 1 || n > maxDimensions {
		return invalid.Field("dimensions", strconv.Itoa(n)+" of them", fmt.Sprintf("1 to %d", maxDimensions))
	}
	cells, names := 1, map[string]bool{}
	for i, d := range s.Dimensions {
		field := fmt.Sprintf("dimensions[%d]", i)
		if err := checkName(field+".name", d.Name, names); err != nil {
			return err
		}
		if err := d.check(field); err != nil {
			return err
		}
		if cells *= d.Size(); cells > MaxCells {
			return invalid.Field("dimensions", "more than 100,000 cells", "at most 100,000 combinations of values")
		}
	}
	return nil
}

// checkName checks a name, and that it is not among known, to which it adds it.
func checkName(field, name string, known map[string]bool) error {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, hidden) || strings.TrimSpace(name) != name {
		return invalid.Field(field, invalid.Quote(name), "1 to 100 bytes of visible text, without spaces around it")
	}
	if known[name] {
		return invalid.Field(field, invalid.Quote(name), "another name than those before")
	}
	known[name] = true
	return nil
}

func (d Dimension) check(field string) error {
	if len(d.Unit) > maxNameBytes || strings.ContainsFunc(d.Unit, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return invalid.Field(field+".unit", invalid.Quote(d.Unit), "at most 100 bytes of visible text")
	}
	switch {
	case (d.Categories == nil) == (d.Edges == nil):
		return invalid.Field(field, "categories and edges", "either categories or edges")
	case d.Size() < 2:
		return invalid.Field(field, strconv.Itoa(d.Size())+" values", "two values or more")
	}
	known := map[string]bool{}
	for i, name := range d.Categories {
		if err := checkName(fmt.Sprintf("%s.categories[%d]", field, i), name, known); err != nil {
			return err
		}
	}
	for i, e := range d.Edges {
		inside := i > 0 && i < len(d.Edges)-1
		if math.IsNaN(e) || inside && math.IsInf(e, 0) || i > 0 && !(e > d.Edges[i-1]) {
			return invalid.Field(fmt.Sprintf("%s.edges[%d]", field, i), strconv.FormatFloat(e, 'g', -1, 64),
				"rising numbers, of which the first may be -.inf and the last .inf")
		}
	}
	return nil
}

// Size returns the number of a dimension's values.
func (d Dimension) Size() int {
	if d.Edges != nil {
		return len(d.Edges) - 1
	}
	return len(d.Categories)
}

// Label returns the text of a value: a category, or an interval such as "0..500 ms".
func (d Dimension) Label(i int) string {
	if d.Edges == nil {
		return d.Categories[i]
	}
	return strings.TrimSpace(edgeText(d.Edges[i]) + ".." + edgeText(d.Edges[i+1]) + " " + d.Unit)
}

func edgeText(e float64) string {
	if math.IsInf(e, 0) {
		return ""
	}
	return strconv.FormatFloat(e, 'f', -1, 64)
}

// Cells returns the number of the table's cells.
func (s *Shape) Cells() int {
	cells := 1
	for _, d := range s.Dimensions {
		cells *= d.Size()
	}
	return cells
}

// find returns the position of a dimension.
func (s *Shape) find(field, name string) (int, error) {
	var names []string
	for i, d := range s.Dimensions {
		if d.Name == name {
			return i, nil
		}
		names = append(names, d.Name)
	}
	return 0, invalid.Field(field, invalid.Quote(name), "one of "+strings.Join(names, ", "))
}

// Select returns the cells of which each dimension in where has one of the values there.
func (s *Shape) Select(field string, where Where) ([]int, error) {
	allowed := make([][]bool, len(s.Dimensions))
	for name, values := range where {
		i, err := s.find(field, name)
		if err != nil {
			return nil, err
		}
		allowed[i] = make([]bool, s.Dimensions[i].Size())
		for _, value := range values {
			if err := s.Dimensions[i].allow(field+"."+name, value, allowed[i]); err != nil {
				return nil, err
			}
		}
	}
	return s.cells(func(index []int) bool {
		for i, ok := range allowed {
			if ok != nil && !ok[index[i]] {
				return false
			}
		}
		return true
	}), nil
}

// cells returns the cells with these indices.
func (s *Shape) cells(with func(index []int) bool) (cells []int) {
	index := make([]int, len(s.Dimensions))
	for cell := range s.Cells() {
		if with(index) {
			cells = append(cells, cell)
		}
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < s.Dimensions[i].Size() {
				break
			}
			index[i] = 0
		}
	}
	return cells
}

// allow marks the values that a text names.
func (d Dimension) allow(field, text string, allowed []bool) error {
	if d.Edges == nil {
		i := slices.Index(d.Categories, text)
		if i < 0 {
			return invalid.Field(field, invalid.Quote(text), "one of the categories: "+few(d.Categories))
		}
		allowed[i] = true
		return nil
	}
	from, to, ok := strings.Cut(text, "..")
	first, isFirst := d.edge(from, 0)
	last, isLast := d.edge(to, d.Size())
	if !ok || !isFirst || !isLast || first >= last {
		var edges []string
		for _, e := range d.Edges {
			edges = append(edges, edgeText(e))
		}
		return invalid.Field(field, invalid.Quote(text), "a range such as 0..2500, 4000.. or ..2500, whose ends are of "+
			"the edges "+few(edges))
	}
	for i := first; i < last; i++ {
		allowed[i] = true
	}
	return nil
}

// edge returns the position of an edge; missing, if the text is empty.
func (d Dimension) edge(text string, missing int) (at int, ok bool) {
	if text == "" {
		return missing, true
	}
	at = slices.IndexFunc(d.Edges, func(e float64) bool { return edgeText(e) == text })
	return at, at >= 0
}

// few joins texts, at most twenty of them.
func few(texts []string) string {
	if len(texts) > 20 {
		return strings.Join(texts[:20], ", ") + ", …"
	}
	return strings.Join(texts, ", ")
}
