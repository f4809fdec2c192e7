package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/decimal"
)

// Ours is the value of Figure.Paper for this module's own figures.
const Ours = "ours"

// Paper is a reproduced paper.
type Paper struct{ Key, Title, URL string }

// Papers returns the papers in the order of docs/reproduction.md. The last entry stands for this module's own figures.
func Papers() []Paper {
	return []Paper{
		{"BBGN19", "Balle, Bell, Gascón, Nissim: The Privacy Blanket of the Shuffle Model",
			"https://arxiv.org/abs/1903.02837"},
		{"GKMPS21", "Ghazi, Kumar, Manurangsi, Pagh, Sinha: Differentially Private Aggregation in the Shuffle Model",
			"https://arxiv.org/abs/2109.13158"},
		{"SCM21", "Scott, Cormode, Maple: Applying the Shuffle Model of Differential Privacy to Vector Aggregation",
			"https://arxiv.org/abs/2112.05464"},
		{"BBGN19b", "Balle, Bell, Gascón, Nissim: Differentially Private Summation with Multi-Message Shuffling",
			"https://arxiv.org/abs/1906.09116"},
		{"AFNNTZ24", "Asi, Feldman, Nelson, Nguyen, Talwar, Zhou: Private Vector Mean Estimation in the Shuffle Model",
			"https://arxiv.org/abs/2404.10201"},
		{Ours, "What no paper has", ""},
	}
}

// Status says whether a paper's claim was reproduced.
type Status string

// The statuses. docs/reproduction.md prints and defines them.
const (
	Reproduced Status = "reproduced"
	Corrected  Status = "corrected"
	OutOfScope Status = "out of scope"
)

// Item is a figure, table, theorem, lemma or number of a paper.
type Item struct {
	Paper  string
	What   string // Position in the paper, and content.
	Status Status
	Note   string // Where this module reproduces it, why numbers differ, or why it is out of scope.

	// value returns the paper's number and this module's number, from the tables of all figures. It is nil if there are
	// no numbers to compare.
	value func(d Data) (paper, ours float64)
	// exact says that both numbers measure the same thing. A test then requires that they agree within 5 %.
	exact bool
}

// Data holds the tables of all figures by the figure's name.
type Data map[string]*Table

// ReadAll reads the tables of all figures from their CSV files below dir.
func ReadAll(dir string) (Data, error) {
	d := Data{}
	for _, f := range All() {
		table, err := f.Read(dir)
		if err != nil {
			return nil, err
		}
		d[f.Name] = table
	}
	return d, nil
}

// Items returns the items of each paper in docs/reproduction.md.
func Items() []Item {
	return slices.Concat(bbgn19Items(), gkmps21Items(), scm21Items(), bbgn19bItems(), afnntz24Items())
}

// WriteReproduction reads all tables below dir and writes reproduction.md below dir.
func WriteReproduction(dir string) error {
	data, err := ReadAll(dir)
	if err != nil {
		return err
	}
	var doc strings.Builder
	doc.WriteString(reproductionHead)
	for _, p := range Papers() {
		p.write(&doc, data)
	}
	return write(dir, "reproduction.md", []byte(doc.String()))
}

const reproductionHead = `# The papers, reproduced

This page is for readers of the papers that Doona implements. It compares our results with theirs. ` + "`make figures`" + ` computes the tables in [docs/figures](figures), and writes this page from them. The numbers of every picture are in a CSV file next to it. [errata.md](errata.md) lists the errors and loose bounds in the papers.

A row of the tables names a figure, table, theorem or lemma:

* *Reproduced*: our computation, or runs of the protocol, give the paper's result.
* *Corrected*: it does not hold as printed. The row says what we computed instead.
* *Out of scope*: we did not compute it, and the row says why.

We had only the texts of the papers, so we could not measure their pictures. The papers' values are those in their texts, in their formulas and in their authors' published notebooks.
`

// write writes the paper's section: its figures with captions and slopes, then the table of its items.
func (p Paper) write(doc *strings.Builder, data Data) {
	title := p.Title
	if p.URL != "" {
		title = fmt.Sprintf("[%s](%s): %s", p.Key, p.URL, p.Title)
	}
	fmt.Fprintf(doc, "\n## %s\n", title)
	for _, f := range All() {
		if f.Paper == p.Key {
			f.write(doc, data[f.Name])
		}
	}
	writeItems(doc, p, data)
}

// write writes the figure's picture, caption and slopes.
func (f *Figure) write(doc *strings.Builder, t *Table) {
	what := f.What
	if what != "" {
		what += ": "
	}
	fmt.Fprintf(doc, "\n### %s%s\n\n![%s](%s/%s.svg)\n\n%s ([data](%s/%s.csv))\n", what,
		lowerFirst(f.Title, what != ""),
		f.Title, Folder, f.Name, f.Caption, Folder, f.Name)
	for _, s := range f.Slopes {
		b, c := t.Fit(s)
		why := ""
		if s.Why != "" {
			why = " " + s.Why + "."
		}
		fmt.Fprintf(doc, "\n* %s: fitted %s·x^%s, theory x^%s.%s", s.Series, number(c), signed(b), signed(s.Theory), why)
	}
	if len(f.Slopes) > 0 {
		doc.WriteString("\n")
	}
}

// lowerFirst lowers the first letter of a title that follows a colon, if the title starts with How, What, The or Where.
func lowerFirst(title string, part bool) string {
	first, rest, _ := strings.Cut(title, " ")
	if !part || first != "How" && first != "What" && first != "The" && first != "Where" {
		return title
	}
	return strings.ToLower(first) + " " + rest
}

func number(x float64) string { return decimal.Format(x, 3) }

func signed(x float64) string {
	return strings.Replace(fmt.Sprintf("%.2f", x), "-", "−", 1)
}

// writeItems writes the table of a paper's items.
func writeItems(doc *strings.Builder, p Paper, data Data) {
	head := "\n| in the paper | | paper | ours | ratio | where, why |\n|---|---|---|---|---|---|\n"
	for _, item := range Items() {
		if item.Paper != p.Key {
			continue
		}
		doc.WriteString(head)
		head = ""
		paper, ours, ratio := "", "", ""
		if item.value != nil {
			a, b := item.value(data)
			paper, ours, ratio = number(a), number(b), number(b/a)
		}
		fmt.Fprintf(doc, "| %s | %s | %s | %s | %s | %s |\n", item.What, item.Status, paper, ours, ratio, item.Note)
	}
}

// Off returns by what fraction this module's number differs from the paper's. same is false if they cannot be compared:
// there are no numbers, or they do not measure the same thing.
func (i *Item) Off(d Data) (off float64, same bool) {
	if i.value == nil || !i.exact {
		return 0, false
	}
	paper, ours := i.value(d)
	return math.Abs(ours/paper - 1), true
}
