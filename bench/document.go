package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// write writes benchmarks.md for readers and benchmarks.json for --alarm into a folder. It keeps the rows of the
// existing benchmarks.json that this run did not measure.
func (r *Result) write(folder string) error {
	path := filepath.Join(folder, "benchmarks.json")
	r.stamp()
	if before, err := readResult(path); err == nil {
		before.stamp()
		r.Rows = merged(before.Rows, r.Rows)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := r.document()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "benchmarks.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("couldn't write the figures: %w", err)
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("couldn't encode benchmarks.json: %w", err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("couldn't write the figures: %w", err)
	}
	return nil
}

// readResult reads a benchmarks.json that write wrote.
func readResult(path string) (*Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the committed figures: %w", err)
	}
	r := new(Result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("couldn't read the committed figures in %s: %w", path, err)
	}
	return r, nil
}

// stamp notes date, commit, load and processor of this run on its rows. Rows of an earlier run keep their note.
func (r *Result) stamp() {
	for i := range r.Rows {
		if r.Rows[i].Measured == "" {
			load, _, _ := strings.Cut(fmt.Sprint(r.Machine["load"]), " ")
			r.Rows[i].Measured = fmt.Sprintf("%v at %v, load %s, %v", r.Machine["date"], r.Machine["commit"], load,
				r.Machine["cpu"])
		}
	}
}

// missing returns the names of rows that have never been measured, except for download/import rows.
func (r *Result) missing() (out []string) {
	for _, name := range names() {
		measured := func(row Row) bool { return row.Name == name && row.Ours != nil }
		if !strings.HasPrefix(name, "download/import/") && !slices.ContainsFunc(r.Rows, measured) {
			out = append(out, name)
		}
	}
	return out
}

// merged merges rows in the order of [names]: new rows replace old ones, and rows with unknown names are dropped.
func merged(before, now []Row) (out []Row) {
	for _, name := range names() {
		for _, rows := range [][]Row{now, before} {
			at := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
			if at >= 0 {
				out = append(out, rows[at])
				break
			}
		}
	}
	return out
}

// document returns the text of benchmarks.md.
func (r *Result) document() (string, error) {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, documentHead, m["cores"], m["os"], m["arch"], m["go"], m["circl"], m["node"])
	b.WriteString("| row | ours | peer | ratio | limit | ratio | runs, least and most | measured " +
		"|\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		if !strings.HasPrefix(row.Name, "download/import/") && row.Ours != nil {
			fmt.Fprintf(&b, "| %s | %s %s | %s | %s | %s | %s | %d: %s to %s | %s |\n", row.Name, cell(row.Ours),
				row.Unit, named(row.Peer, row.PeerName), cell(row.PeerRatio), named(row.Limit, row.LimitName),
				cell(row.LimitRatio), row.Runs, cell(row.Min), cell(row.Max), row.Measured)
		}
	}
	if never := r.missing(); len(never) > 0 {
		fmt.Fprintf(&b, "\nNot measured yet: %s.\n", strings.Join(never, ", "))
	}
	b.WriteString(documentPromises)
	for _, name := range []string{"e2e/1e6", "e2e/1e5"} {
		if spent := r.spent(name); len(spent) == len(players) {
			whereTimeGoes(&b, name, spent)
			r.withoutRelay(&b, spent)
			if err := daily(&b, spent); err != nil {
				return "", err
			}
			break
		}
	}
	return b.String(), nil
}

const documentHead = "# Benchmarks\n\nThis page is for readers who want to know how fast and how large Doona is. " +
	"It compares Doona with Divvi Up's client and with measured limits. " +
	"`make bench ARGS=\"--full --write docs\"` writes it. Do not edit it: edit `bench/document.go`.\n" + `
* **Machine**: %v cores, %v/%v.
* **Versions**: %v, circl %v, Node %v, @divviup/dap 0.9.1.
* **Measured**: the date, the commit, the load average at the start and the processor. If the load is above 1, other programs affected the figures, above all the times.
* **Ours**: the median of the runs. Ours and the peer take turns in one run.
* **Ratio to the peer**: above 1, ours is better than the peer.
* **Ratio to the limit**: how much of the limit we reach. It may exceed 1.
* **CPU time**: user and system time of the process. For rows of servers, the limit is measured on all cores at once, as the servers run.

The files of ` + "`bench/`" + ` say how each limit is measured. [Below](#what-the-peers-promise) is what the peers promise.

`

const documentPromises = `
## What the peers promise

* **@divviup/dap, and Prio3 by circl**: two aggregators hold shares of each value. Privacy against each of them holds if the other does not collude, whatever clients do. Clients prove that their values are valid.
* **Their noise**: the sums are exact before noise. The rows ` + "`rmse`" + ` have the noise for the same (ε, δ), which each of two aggregators must add by itself. It is less than ours wherever clients add the noise.
* **Ours with noise by relays** (rows relay/noise): the error is near the peer's, and no other client needs to be honest. Relays and verifier handle dummies besides reports.
* **Ours with noise by clients**: privacy holds if one relay does not collude and the assumed share of clients is honest. If all relays collude, ε₀ remains, except for [some protocols](protocols.md). Nobody proves that values are valid. One client moves an answer by more than its own value; ` + "`doona plan`" + ` says by how much.
`

func named(value *float64, name *string) string {
	if value == nil {
		return "-"
	}
	return cell(value) + " (" + *name + ")"
}

// spending is a party's CPU time per client in microseconds: in all, and for cryptography alone.
type spending struct{ all, cryptography float64 }

// spent returns the spending of each of [players], from the cpu rows of an end-to-end run such as e2e/1e5.
func (r *Result) spent(name string) (out []spending) {
	for _, player := range players {
		for _, row := range r.Rows {
			if row.Name == name+"/"+player+"/cpu" && row.Limit != nil {
				out = append(out, spending{*row.Ours, *row.Limit})
			}
		}
	}
	return out
}

// parties names the [players] as readers of the document see them.
var parties = []string{"first relay", "later relay", "verifier", "client"}

func whereTimeGoes(b *strings.Builder, name string, spent []spending) {
	fmt.Fprintf(b, `
## Where the time goes

CPU time for one client of a histogram of 256 bins, in microseconds, in %s:

| party | all | its cryptography | share |
|---|---|---|---|
`, name)
	var sum spending
	for i, s := range spent {
		sum.all, sum.cryptography = sum.all+s.all, sum.cryptography+s.cryptography
		fmt.Fprintf(b, "| %s | %.4g | %.4g | %.0f %% |\n", parties[i], s.all, s.cryptography, 100*s.cryptography/s.all)
	}
	fmt.Fprintf(b, "| together | %.4g | %.4g | %.0f %% |\n", sum.all, sum.cryptography, 100*sum.cryptography/sum.all)
	b.WriteString(`
Cryptography is one X25519 for each opening and two for each seal, with circl, HKDF and AES. It includes the encryption of what a relay stores. ` + "`perf`" + ` shows the rest on the same run:

* **First relay**: net/http and the kernel's sockets take a quarter, the store an eighth, and our handler without the opening a tenth. The runtime takes what remains: scheduling, garbage collection, and waiting for disk and network.
* **Later relay**: the database of the ciphertexts that have come takes a tenth. The rest of the data flow takes as much.
* **Client** (` + "`doona load`" + `): two system calls for each request, the draw of randomness, and memory.

With several reports in a request, the first relay would save most of its time outside cryptography. But a report is one client's, and comes by itself.
`)
}

// withoutRelay writes how much CPU time all parties would spend if bench/bare replaced the first relay.
func (r *Result) withoutRelay(b *strings.Builder, spent []spending) {
	for _, row := range r.Rows {
		if row.Name != "relay/ingest/sqlite" || row.Limit == nil {
			continue
		}
		bare, cryptography := 1e6 / *row.Limit, 0.0
		all := bare
		for i, s := range spent {
			cryptography += s.cryptography
			if i > 0 {
				all += s.all
			}
		}
		fmt.Fprintf(b, `
The bare server of relay/ingest only opens a report and stores it. It takes %.4g microseconds there. In the first relay's place, all parties together would take %.3g times their cryptography. That is the cost of HTTP with one request for each report.
`, bare, all/cryptography)
	}
}

// Assumed prices in US dollars, and assumed traffic, for the table of [daily]. Replace them with your own.
const (
	coreHour       = 0.05
	gigabyteOut    = 0.09
	gigabyteMonth  = 0.10
	reportsDaily   = 1e9
	secondsDaily   = 86_400
	peakOverMean   = 3    // Load of a site's busiest hour, divided by its mean load.
	requestHeaders = 400  // Bytes that a browser sends in addition to a body.
	handshake      = 4000 // Bytes of a TLS handshake, both directions together.
)

// daily writes what 10⁹ reports a day cost.
func daily(b *strings.Builder, spent []spending) error {
	draft, err := planner.Draft(usual(usualClients).Query)
	if err != nil {
		return err
	}
	draft.Relays = make([]task.Party, 2)
	layout, err := onion.NewLayout(draft)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, documentDaily, layout.MaxBody(), coreHour, gigabyteOut)
	body, first, second := float64(layout.MaxBody()), float64(layout.SlotSize(1)), float64(layout.SlotSize(2))
	in := []float64{body + requestHeaders + handshake, first, second}
	for i, s := range spent[:3] {
		cores := reportsDaily * s.all / 1e6 / secondsDaily
		out := 0.0
		if i < 2 {
			out = []float64{first, second}[i] * reportsDaily / 1e9
		}
		fmt.Fprintf(b, "| %s | %.3g | %.0f | %.4g | %.4g | %.0f |\n", parties[i], cores, math.Ceil(peakOverMean*cores),
			in[i]*reportsDaily/1e9, out, 24*coreHour*math.Ceil(peakOverMean*cores)+gigabyteOut*out)
	}
	b.WriteString(documentChecked)
	return nil
}

const documentDaily = `
## To 10⁹ reports a day

The same task with two relays and %d bytes a report.

* **Cores, mean**: CPU time over the seconds of a day.
* **Cores, provisioned**: three times the mean, for the busiest hour.
* **GB in**: for the first relay, each report has 400 bytes of HTTP headers and 4,000 of a TLS connection. A proxy may end TLS. Its CPU time is not in these figures.
* **Dollars**: we assume $%.2f for a core's hour and $%.2f for a gigabyte that leaves. Use your own prices.

| party | cores, mean | cores, provisioned | GB in a day | GB out a day | dollars a day |
|---|---|---|---|---|---|
`

const documentChecked = `
A task's first relay runs in as many processes as it needs, on one database. Clients go to any of them. Epochs and tasks share nothing, so a day may also be divided by them. The later relay and the verifier work batch by batch.

What is checked here:

* CPU time for a client at 10⁵ and at 10⁶ clients (rows ` + "`e2e`" + `);
* the verifier's CPU time up to 10⁷ messages ([results.json](results.json), a slope of at most 1.02);
* memory, which does not grow with the clients;
* growth with slots and relays (rows ` + "`growth`" + `).

What is not checked: more than one machine, a network between them, and a database under the load of several processes.
`
