package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/doona-dp/doona/verifier"
)

// Print writes the report as text for people, in the words of the page.
func Print(w io.Writer, r *verifier.Report) error {
	a, p := newPageModel(r), &printer{w: w}
	p.line(a.Name)
	p.line(a.Summary())
	p.gap()
	if a.Main != nil {
		p.line(a.Main.Figure + " " + a.Main.Words)
	}
	for _, t := range a.Tiles {
		p.line(t.Figure + " " + t.Words)
	}
	p.line(a.Verdict)
	p.line(a.DryRunNote())
	p.heading(a.Measure)
	for _, text := range []string{a.Waiting(), a.Unusable(), a.Loss()} {
		p.line(text)
	}
	p.table(a.One)
	p.table(a.Entries)
	p.table(a.Found)
	p.line(a.AboutTexts())
	if a.Hidden > 0 {
		p.line(a.MoreEntries())
	}
	p.line(a.ErrorBars())
	if a.Possible != nil {
		p.gap()
		p.table(a.Possible)
		p.line(a.AboutPossible())
	}
	if a.Quantiles != nil {
		p.heading("Quantiles and mean")
		p.table(a.Quantiles)
		p.line(a.AboutQuantiles())
	}
	a.printRest(p)
	return p.err
}

// printRest prints everything except the answer.
func (a *pageModel) printRest(p *printer) {
	if a.Epochs != nil {
		p.heading("Epochs")
		p.table(a.Epochs)
		p.line(a.AboutEpochs())
	}
	p.heading("Guarantee and ledger")
	p.facts(a.Costs)
	p.line(a.WithheldNote())
	p.line(a.Exposed())
	p.line(a.Promise)
	p.heading("Messages by hop")
	p.table(a.Hops)
	p.line(a.Messages())
	if a.LastRelay != nil {
		p.heading("Last relay and epochs")
		p.facts(a.LastRelay)
	}
	if len(a.Findings) == 0 {
		return
	}
	p.heading("Findings")
	for _, f := range a.Findings {
		p.line(f.Line())
	}
	p.line(AboutFindings)
}

// printer writes lines and tables, until the first error, which it keeps.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, strings.ReplaceAll(text, noBreak, " "))
	}
}

// line writes a line, unless it is empty.
func (p *printer) line(text string) {
	if text != "" {
		p.write(text + "\n")
	}
}

func (p *printer) gap() { p.write("\n") }

func (p *printer) heading(text string) { p.write("\n" + text + "\n") }

func (p *printer) facts(facts []fact) {
	for _, f := range facts {
		p.line(fmt.Sprintf("%s: %s", f.Term, f.Text))
	}
}

// table writes aligned columns.
func (p *printer) table(t *table) {
	if t == nil {
		return
	}
	var out strings.Builder
	tab := tabwriter.NewWriter(&out, 0, 4, 2, ' ', tabwriter.AlignRight)
	io.WriteString(tab, strings.Join(t.Head, "\t")+"\t\n")
	for _, row := range t.Rows {
		for _, c := range row {
			io.WriteString(tab, c.Text+"\t")
		}
		io.WriteString(tab, "\n")
	}
	tab.Flush() // writes to memory, so it does not fail
	p.write(out.String())
}
