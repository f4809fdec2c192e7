package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/openloop"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/handover"
)

// loadFlags are the flags of `doona load`.
type loadFlags struct {
	task, owner, header, admin string
	values, report, ca         string
	format                     table.Format // Format of the file in values.
	rate                       float64
	clients, connections, pid  int
	ahead                      int // Reports to seal before sending, in MB.
	duration, wait             time.Duration

	http *http.Client // Also trusts the authorities in ca.
	tls  *tls.Config
}

// loadResult is what `doona load` prints.
type loadResult struct {
	Clients   int            `json:"clients"`
	Rate      float64        `json:"rate_per_second"` // requested; 0: as fast as answers come
	Seconds   float64        `json:"seconds"`
	Offered   int            `json:"offered"`
	Late      int            `json:"late"` // Due and not sent, because every connection was in use.
	Accepted  int            `json:"accepted"`
	PerSecond float64        `json:"accepted_per_second"`
	Refused   map[string]int `json:"refused"`
	P50       float64        `json:"p50_ms"`
	P99       float64        `json:"p99_ms"`
	PeakRSS   int            `json:"relay_peak_rss_kb,omitempty"`

	Comparison *comparison `json:"comparison,omitempty"` // Nil without --report.
}

const aboutLoad = `Load simulates N clients of a task, with one value each. It seals --preseal-mb megabytes of reports in advance.
Then it sends reports at a fixed rate, however slow the relay is, over at most --connections connections,
and seals the next ones meanwhile. If the relay refuses a report because it is full, load sends it again after
all others, or when --preseal-mb megabytes wait. So memory hardly grows with the clients: 8 bytes for each.
Latency counts from the moment at which a report was due, so a slow relay cannot hide its delay.

Use it only with a test relay: the reports are real, fill batches, and spoil the task's estimate.

A relay limits the reports of each network. So each client names its own network in the header
--forwarded-header. The relay believes it if its trusted_proxies include this machine. Otherwise all clients
are one network, and the relay answers most of them with 429. A second run in an epoch uses the same networks,
which have reported already: for several runs, give the task a quota (task new --quota).

To find a relay's capacity, use --rate 0, which sends as fast as answers arrive. Then use a higher rate, and
check that memory and the latency of accepted reports stay bounded. Sealing takes processor time too. So run
load on another machine, with --preseal-mb for all reports. Otherwise the figures are those of both programs.

--values sets the clients' values. worst: the value with the largest error, on which the load does not depend.
uniform: uniform over the domain. zipf: the k-th bin, or the k-th of 100 levels of a number, with a frequency
proportional to 1/k. A file: its values, in turn. The same clients have the same values in every run.

--report is the address of the task's page at its verifier (…/tasks/ID). Load waits until the verifier has
released all accepted clients. Then it compares the estimate with the exact answer. The task must have no
reports yet. --clients must be a multiple of its batch size, and the relay must accept all of them within
--duration.

Load sends reports to the address that the task names. A proxy that writes the header --forwarded-header itself,
as those in deploy/ do, turns all clients into one network: test with a task that names the relay's own address.
It is an error if the relay accepts no report. Load ends early if the first 100 answers are all
state-rolled-back, or if it cannot connect.

For a task with tokens, each client first gets a token from the issuer, which must count networks and trust
the same header.

--pid (on the same machine) or --admin adds the relay's peak memory.`

func loadCommand() *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load --task URL --owner ed25519:… --rate R --clients N --duration D",
		Short: "Send reports to a test relay at a rate and measure how many it accepts",
		Long:  aboutLoad,
		Example: `  doona load --task http://127.0.0.1:8081/v1/tasks/ID --owner ed25519:… --rate 0 --clients 20000 --duration 10s
  doona load --task http://127.0.0.1:8081/v1/tasks/ID --owner ed25519:… --rate 8000 --clients 50000 --duration 1m --admin http://127.0.0.1:9081 --json
  doona load --task http://127.0.0.1:8081/v1/tasks/ID --owner ed25519:… --rate 0 --clients 10000 --values zipf --report http://127.0.0.1:8090/tasks/ID`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			if err := f.check(cmd); err != nil {
				return err
			}
			result, truth, err := f.run(ctx)
			if result == nil {
				return err
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON { // The verifier may take long, or never answer.
				result.print(cmd.OutOrStdout())
			}
			if err == nil && truth != nil {
				result.Comparison, err = f.compare(ctx, truth)
			}
			return errors.Join(cli.Print(cmd, result, result.Comparison.print), err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "URL of the task at its first relay: …/v1/tasks/ID")
	flags.StringVar(&f.owner, "owner", "", "the owner's public key, ed25519:…")
	flags.Float64Var(&f.rate, "rate", 100, "reports per second, 0 to 1000000; 0: as fast as answers come")
	flags.IntVar(&f.clients, "clients", 1000, "clients, 1 to 10000000; each has one report")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "how long to send, 100ms to 8784h")
	flags.IntVar(&f.connections, "connections", 256, "connections at a time, 1 to 65536")
	flags.IntVar(&f.ahead, "preseal-mb", 128,
		"sealed reports to hold, before the first is offered and then, in MB, 1 to 1048576")
	flags.StringVar(&f.values, "values", openloop.Worst,
		"the clients' values: worst, uniform, zipf, or a CSV file (may be gzip), for texts a file of lines")
	flags.StringVar(&f.format.Column, "column", "", "of such a file: column name or index from 0 (default: the only one)")
	cli.ReadsTables(cmd, &f.format)
	flags.StringVar(&f.report, "report", "",
		"URL of the task's page at the verifier, …/tasks/ID: wait for the estimate and compare it with the truth")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute,
		"how long to wait for the estimate at most, 0s to 8784h; with --report")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.StringVar(&f.header, "forwarded-header", "X-Forwarded-For",
		"header for the synthetic networks, X-Forwarded-For or Forwarded")
	flags.StringVar(&f.admin, "admin", "",
		"base URL of the relay's admin address, for its peak memory in kB; without --pid")
	flags.IntVar(&f.pid, "pid", 0, "the relay's process on this machine, 1 or more, for its peak memory in kB")
	cli.Require(cmd, "task", "owner")
	return cmd
}

func (f *loadFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case !isURL(f.task):
		return cli.Usagef("invalid task %q: want a URL such as https://relay.example/v1/tasks/ID", f.task)
	case !(f.rate >= 0 && f.rate <= 1e6):
		return cli.Usagef("invalid rate %g: want 0 to 1000000 reports per second", f.rate)
	case f.clients < 1 || f.clients > 10_000_000:
		return cli.Usagef("invalid clients %d: want 1 to 10000000", f.clients)
	case f.duration < 100*time.Millisecond || f.duration > longest:
		return cli.Usagef("invalid duration %v: want 100ms to 8784h", f.duration)
	case f.connections < 1 || f.connections > 65536:
		return cli.Usagef("invalid connections %d: want 1 to 65536", f.connections)
	case f.ahead < 1 || f.ahead > 1<<20:
		return cli.Usagef("invalid preseal-mb %d: want 1 to %d MB", f.ahead, 1<<20)
	case f.header != "X-Forwarded-For" && f.header != "Forwarded":
		return cli.Usagef("invalid forwarded-header %q: want X-Forwarded-For or Forwarded", f.header)
	case given("report") && !isURL(f.report):
		return cli.Usagef("invalid report %q: want a URL such as https://verifier.example/tasks/ID", f.report)
	case f.wait < 0 || f.wait > longest:
		return cli.Usagef("invalid wait %v: want 0s to 8784h", f.wait)
	case given("wait") && !given("report"):
		return cli.Refuse(cmd, "without --report", "wait")
	case given("admin") && !isURL(f.admin):
		return cli.Usagef("invalid admin %q: want a URL such as http://127.0.0.1:9081", f.admin)
	case given("pid") && f.pid < 1:
		return cli.Usagef("invalid pid %d: want the number of a process, 1 or more", f.pid)
	case slices.Contains([]string{openloop.Worst, openloop.Uniform, openloop.Zipf}, f.values):
		not := append([]string{"column"}, cli.TableFlags...)
		if err := cli.Refuse(cmd, "without a file of --values", not...); err != nil {
			return err
		}
	}
	if given("pid") {
		return cli.Refuse(cmd, "with --pid: give one of them, for the relay's peak memory", "admin")
	}
	return nil
}

// longest is the longest time for which load sends or waits.
const longest = 8784 * time.Hour

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// run sends the reports and returns its measurements, even together with an error. With --report it also returns the
// true answer of the clients.
func (f *loadFlags) run(ctx context.Context) (*loadResult, *openloop.Truth, error) {
	if err := f.trust(); err != nil {
		return nil, nil, err
	}
	// The values are synthetic, so they need no privacy budget.
	client, err := shufflerclient.Connect(ctx, shufflerclient.Options{Task: f.task, Owner: f.owner,
		MaxEpsilon: math.MaxFloat64, MaxDelta: 1, HTTP: f.http, Tokens: f.token})
	if err != nil {
		return nil, nil, err
	}
	open := client.Task()
	if n := int(open.Batch.Size); f.report != "" && f.clients%n != 0 {
		return nil, nil, cli.Usagef("invalid clients %d: want a multiple of %d, the task's batch size, with --report: "+
			"the estimate covers full batches only", f.clients, n)
	}
	values, err := f.prepare(ctx, open.Task)
	if err != nil {
		return nil, nil, err
	}
	epoch, now := open.Epochs.At(uint64(time.Now().Unix()))
	if !now {
		return nil, nil, fmt.Errorf("couldn't load the relay: no epoch of the task is open now")
	}
	p, err := f.seal(ctx, client, epoch, values)
	if err != nil {
		return nil, nil, err
	}
	defer p.stop()
	var truth *openloop.Truth
	var taken func(*openloop.LoadReport)
	if f.report != "" {
		if truth, err = openloop.NewTruth(open.Task); err != nil {
			return nil, nil, err
		}
		taken = func(r *openloop.LoadReport) { truth.Add(values(r.Number)) }
	}
	out, err := f.offer(ctx, open.ReportsURL(epoch), p, taken)
	switch {
	case err != nil:
	case out.Accepted == 0:
		err = fmt.Errorf("no report was accepted; the commonest answer: %s", out.commonest())
	case f.report != "" && out.Accepted%int(open.Batch.Size) != 0:
		why := "--duration ended it"
		if out.Seconds < f.duration.Seconds() {
			why = "the commonest refusal: " + out.commonest()
		}
		err = fmt.Errorf("couldn't compare with the truth: %d of %d reports were accepted in %v, and batches have %d; %s",
			out.Accepted, f.clients, f.duration, open.Batch.Size, why)
	}
	return out, truth, err
}

// commonest returns the most frequent reason for which reports were refused.
func (r *loadResult) commonest() string {
	most := "none came"
	for name, n := range r.Refused {
		if n > r.Refused[most] {
			most = name
		}
	}
	return most
}

func (f *loadFlags) offer(ctx context.Context, to string, p *press,
	taken func(*openloop.LoadReport)) (*loadResult, error) {
	target, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	most := make(chan int, 1)
	if f.admin != "" {
		go f.watch(watching, most)
	} else {
		most <- 0
	}
	f.tls.ServerName = target.Hostname()
	bar := cli.Progress("offering", f.clients)
	r := openloop.Run(p.ctx, openloop.Options{
		URL: target, Header: f.header, Rate: f.rate, Duration: f.duration, Connections: f.connections,
		MaxWaiting: p.ahead,
		TLS:        f.tls, Taken: taken, Progress: func() { bar.Add(1) },
	}, p.reports)
	bar.Finish()
	stop()
	if err := p.failed(); err != nil {
		return nil, err
	}
	out := &loadResult{Clients: f.clients, Rate: f.rate, Seconds: r.Seconds, Offered: r.Offered, Late: r.Late,
		Accepted: r.Accepted, PerSecond: float64(r.Accepted) / r.Seconds, Refused: r.Refused,
		P50: r.Quantile(0.5), P99: r.Quantile(0.99), PeakRSS: <-most}
	if f.pid != 0 {
		out.PeakRSS, err = openloop.PeakRSS(f.pid)
	} else if f.admin != "" && out.PeakRSS == 0 {
		err = fmt.Errorf("couldn't read the relay's memory: %s/metrics does not have it",
			strings.TrimSuffix(f.admin, "/"))
	}
	return out, err
}

// trust prepares connections that also trust the authorities in ca.
func (f *loadFlags) trust() error {
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return err
	}
	t := transport.(*http.Transport)
	t.MaxIdleConnsPerHost = 2 * runtime.NumCPU()
	f.tls = t.TLSClientConfig.Clone()
	f.http = &http.Client{Transport: t, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	return nil
}

// resident matches the resident memory, in bytes, in the metrics of a process.
var resident = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// watch polls the relay's memory every 250 ms until ctx ends. Then it sends the largest value, in kB, to most.
func (f *loadFlags) watch(ctx context.Context, most chan<- int) {
	peak := 0
	defer func() { most <- peak }()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if text, err := f.fetch(ctx, strings.TrimSuffix(f.admin, "/")+"/metrics"); err == nil {
			if m := resident.FindStringSubmatch(text); m != nil {
				bytes, _ := strconv.ParseFloat(m[1], 64)
				peak = max(peak, int(bytes)>>10)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *loadFlags) fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, cli.MaxStatus))
	return string(text), err
}

func (r *loadResult) print(w io.Writer) {
	fmt.Fprintf(w, "sent      %d reports of %d clients in %.1f s; %d more were due and not sent, because every "+
		"connection was in use\n", r.Offered, r.Clients, r.Seconds, r.Late)
	fmt.Fprintf(w, "accepted  %d (%.0f/s), p50 %.1f ms, p99 %.1f ms\n", r.Accepted, r.PerSecond, r.P50, r.P99)
	for name, n := range r.Refused {
		fmt.Fprintf(w, "refused   %d %s\n", n, name)
	}
	if r.PeakRSS > 0 {
		fmt.Fprintf(w, "memory    %d kB, the relay's peak\n", r.PeakRSS)
	}
}
