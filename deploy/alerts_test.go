package main_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// samples are the values of metrics. The key is the metric's name with its labels.
type samples map[string]map[string]float64

// scrape reads the metrics of running programs.
func scrape(t *testing.T, admins ...string) samples {
	t.Helper()
	out := samples{}
	for _, admin := range admins {
		text := get(t, "http://"+admin+"/metrics")
		for _, m := range regexp.MustCompile(`(?m)^(doona_\w+)(?:\{(.*)\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
			value, err := strconv.ParseFloat(m[3], 64)
			require.NoError(t, err)
			if out[m[1]] == nil {
				out[m[1]] = map[string]float64{}
			}
			out[m[1]][m[2]] = value
		}
	}
	return out
}

// selector matches the part of a rule that names a metric: its value or its change in a time, and a label.
var selector = regexp.MustCompile(`(?:(rate|increase)\((doona_\w+)(?:\{(.*?)\})?\[\w+\]\)|(doona_\w+)(?:\{(.*?)\})?)`)

// firing returns the alerts whose conditions hold, given the samples of now and of an hour ago. It ignores for how long
// a condition must hold. It evaluates only the forms that the rules use: comparisons of one metric, series by series.
func firing(t *testing.T, before, now samples, at time.Time) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("grafana", "alerts.yaml"))
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.NotEmpty(t, file.Groups[0].Rules)
	for _, rule := range file.Groups[0].Rules {
		if metric, _, rises := strings.Cut(rule.Expr, " > ("); rises && strings.Contains(rule.Expr, " offset 1d ") {
			for labels, value := range now[metric] {
				if value > before[metric][labels] {
					names = append(names, rule.Alert)
					break
				}
			}
			continue
		}
		m := selector.FindStringSubmatch(rule.Expr)
		require.NotNil(t, m, rule.Expr)
		if strings.HasPrefix(rule.Expr, "max_over_time") { // there lately, unless there now
			if len(before[m[4]]) > 0 && len(now[m[4]]) == 0 {
				names = append(names, rule.Alert)
			}
			continue
		}
		for labels, value := range now[m[2]+m[4]] {
			if !strings.Contains(labels, m[3]+m[5]) {
				continue
			}
			was, seen := before[m[2]+m[4]][labels]
			if m[1] != "" {
				value -= was
				if !seen { // as Prometheus, which knows of no increase from nothing
					value = 0
				}
			}
			expr := selector.ReplaceAllString(rule.Expr, fmt.Sprintf("(%f)", value))
			expr = strings.NewReplacer("time()", fmt.Sprint(at.Unix()), " and ", " && ").Replace(expr)
			holds, err := clitest.Eval(expr, nil)
			require.NoError(t, err, "%s: %s", rule.Expr, expr)
			if holds == true {
				names = append(names, rule.Alert)
				break
			}
		}
	}
	return names
}

// also returns samples, and from others the samples of one metric.
func also(to, from samples, metric string) samples {
	to[metric] = from[metric]
	return to
}

// TestRelayAlerts: alerts must fire for the first finding of a kind, for an upstream relay that was unreachable since
// the relay started, and for a relay process that does not run.
func TestRelayAlerts(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	admin := c.Config(t, 1).Admin
	stop := c.Start(t, 1)
	begun := scrape(t, admin)
	require.Empty(t, without(firing(t, begun, begun, time.Now()), "DoonaRelayEpochsEnd"))
	require.Equal(t, []string{"DoonaRelayNoAnswer"}, without(firing(t, begun, begun, time.Now().Add(2*time.Hour)),
		"DoonaRelayEpochsEnd"))
	first := c.StartFirst(t)
	slots := c.Slots(t, 0, 1, 2, 3)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, slots))
	require.Eventually(t, func() bool { return len(c.Status(t, 1).Findings) > 0 }, relaytest.Patience,
		10*time.Millisecond)
	require.Contains(t, firing(t, begun, scrape(t, admin), time.Now()), "DoonaRelayFinding")
	stop()
	require.Equal(t, []string{"DoonaRelayGone"}, firing(t, begun, samples{}, time.Now()))
}

// TestOwnerAlert: the alert must fire if an approved owner's task exceeds the owner's limit, and not before.
func TestOwnerAlert(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	c.Start(t, 0)
	begun := scrape(t, c.Config(t, 0).Admin)
	bundle := c.Sign(t, c.Named("one"))
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	well := scrape(t, c.Config(t, 0).Admin)
	require.Empty(t, without(firing(t, begun, well, time.Now()), "DoonaRelayEpochsEnd"))
	_, err := c.Ask(t, 0, c.Named("two"))
	require.ErrorIs(t, err, problem.New(problem.OwnerTaskLimit, ""))
	refused := scrape(t, c.Config(t, 0).Admin)
	require.Equal(t, []string{"DoonaRelayOwnerTaskLimit"},
		without(firing(t, well, refused, time.Now()), "DoonaRelayEpochsEnd"))
	require.Empty(t, without(firing(t, refused, refused, time.Now()), "DoonaRelayEpochsEnd"))
}

// TestReloadAlert: the alert must fire while a changed configuration is not applied, and no longer.
func TestReloadAlert(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	r, _ := c.StartRelay(t, 0)
	fires := func() []string {
		now := scrape(t, c.Config(t, 0).Admin)
		return without(firing(t, now, now, time.Now()), "DoonaRelayEpochsEnd")
	}
	require.Empty(t, fires())
	require.Error(t, r.Reload(func() (relay.Config, error) { return relay.Config{}, os.ErrNotExist }))
	require.Equal(t, []string{"DoonaRelayReloadFailed"}, fires())
	require.NoError(t, r.Reload(func() (relay.Config, error) { return c.Config(t, 0), nil }))
	require.Empty(t, fires())
}

// TestSetAlerts: an alert must fire for each state in which a set is not well, and none while it is.
func TestSetAlerts(t *testing.T) {
	table := fixture.Table(4, task.Epochs{Start: uint64(time.Now().Unix()), Length: 86400, Count: 30})
	table.Name = "visits"
	set := tableset.Set{Name: "site", Tables: []tableset.Table{{Name: "visits"}},
		Total: tableset.Total{Epsilon: task.NewEpsilon("100"), Delta: task.NewDelta("1e-3"), Days: 1}}
	c := relaytest.New(t, relaytest.Options{Hops: 1,
		Set: &quickstart.Set{Name: "site", Set: set, Tables: []*task.Task{table}}})
	c.Start(t, 0)
	now := scrape(t, c.Config(t, 0).Admin)
	fires := func() []string { return without(firing(t, now, now, time.Now()), "DoonaRelayEpochsEnd") }
	require.Empty(t, fires())
	states := now["doona_relay_sets"]
	require.Equal(t, map[string]float64{`state="served"`: 1, `state="incomplete"`: 0, `state="unpermuted"`: 0}, states)
	for state, alert := range map[string]string{`state="incomplete"`: "DoonaRelaySetIncomplete",
		`state="unpermuted"`: "DoonaRelaySetUnpermuted"} {
		states[state] = 1
		require.Equal(t, []string{alert}, fires())
		states[state] = 0
	}
}

// TestRefusingAlert: the alert must fire if most reports are refused, such as those of a whole site behind one address,
// and not before.
func TestRefusingAlert(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) { draft.Batch.Size = 1000 }})
	c.Start(t, 0)
	fires := func() []string {
		now := scrape(t, c.Config(t, 0).Admin)
		return without(firing(t, now, now, c.Clock.Now()), "DoonaRelayEpochsEnd")
	}
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(0)))
	for range 64 {
		require.ErrorIs(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(0)), problem.New(problem.Limit, ""))
	}
	require.Empty(t, fires())
	c.Clock.Advance(time.Minute)
	require.Equal(t, []string{"DoonaRelayRefusing"}, fires())
}

// TestIssuerAlert: the alert must fire two weeks before the end of the issuer's last epoch, and not before.
func TestIssuerAlert(t *testing.T) {
	const day = 24 * time.Hour
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10, relaytest.WithTokens,
		func(draft *task.Task) { draft.Epochs.Length, draft.Epochs.Count = task.Length(10*day/time.Second), 3 })})
	c.Start(t, 0)
	cfg := c.IssuerConfig()
	cfg.Admin = relaytest.FreeAddress(t)
	c.StartIssuer(t, cfg)
	well := scrape(t, cfg.Admin)
	require.Empty(t, firing(t, well, well, c.Clock.Now().Add(15*day)))
	require.Equal(t, []string{"DoonaIssuerEpochsEnd"}, firing(t, well, well, c.Clock.Now().Add(17*day)))
}

// TestRunbook: each alert must have a severity and a section in the runbook, and the runbook no sections of other
// alerts.
func TestRunbook(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("grafana", "alerts.yaml"))
	require.NoError(t, err)
	pages, err := os.ReadFile(filepath.Join("..", "docs", "runbook.md"))
	require.NoError(t, err)
	find := func(pattern string, in []byte) (out []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(in), -1) {
			out = append(out, m[1])
		}
		return out
	}
	alerts := find(`(?m)^      - alert: (\w+)$`, rules)
	require.ElementsMatch(t, alerts, find(`(?m)^### (Doona\w+)$`, pages))
	require.Len(t, find(`(?m)^          severity: (page|ticket)$`, rules), len(alerts))
	links := find(`(?m)^          runbook_url: .*docs/runbook\.md#(\w+)$`, rules)
	for i, alert := range alerts {
		require.Equal(t, strings.ToLower(alert), links[i])
	}
}

// without returns names without one of them.
func without(names []string, but string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == but })
}

// TestAlerts: no alert may fire while all is well. Each of the verifier's alerts must fire on its fault.
func TestAlerts(t *testing.T) {
	const day = 24 * time.Hour
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(draft *task.Task) {
		relaytest.Mean(10)(draft)
		draft.Epochs.Length, draft.Epochs.Count = task.Length(10*day/time.Second), 3
	}})
	first := relaytest.FreeAddress(t)
	cfg := server.Config{Admin: first, Data: t.TempDir()}
	stop := startVerifier(t, c, cfg)
	stopRelay := c.Start(t, 0)
	batches := func(admin, want string) func() bool {
		return func() bool { return strings.Contains(get(t, "http://"+admin+"/metrics"), want) }
	}
	labels := `{owner="",task="` + c.Open.ID.String()[:8] + `"} ` // a relay's task
	of := `{task="` + c.Open.ID.String()[:8] + `"} `
	zero := scrape(t, c.Config(t, 0).Admin, first)
	report(t, c, 20)
	require.Eventually(t, batches(first, "doona_verifier_batches"+of+"2"), 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, batches(c.Config(t, 0).Admin, "doona_relay_unconfirmed_batches"+labels+"0"), 10*time.Second,
		20*time.Millisecond)
	require.Eventually(t, batches(first, "doona_verifier_relay_unreachable"+of+"0"), 10*time.Second, 20*time.Millisecond)
	well := scrape(t, c.Config(t, 0).Admin, first)
	require.Empty(t, firing(t, zero, well, time.Now()))
	require.Equal(t, []string{"DoonaRelayEpochsEnd", "DoonaVerifierEpochsEnd"},
		firing(t, well, well, time.Now().Add(20*day)))

	stop()
	stopRelay()
	kept, err := filepath.Glob(filepath.Join(cfg.Data, c.Open.ID.String(), "*.batch"))
	require.NoError(t, err)
	require.Len(t, kept, 2)
	require.NoError(t, os.Truncate(kept[0], 100))
	records, err := filepath.Glob(strings.TrimSuffix(kept[0], ".batch") + "-*.record")
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.Truncate(records[0], 10))
	cfg.Admin = relaytest.FreeAddress(t)
	cfg.Clock = func() time.Time { return time.Now().Add(11 * day) }
	stop = startVerifier(t, c, cfg)
	require.Eventually(t, batches(cfg.Admin, "doona_verifier_relay_unreachable"+of+"1"), 10*time.Second, 20*time.Millisecond)
	require.Equal(t, []string{"DoonaVerifierRelayUnreachable", "DoonaVerifierLate", "DoonaVerifierFinding",
		"DoonaVerifierNotConfirmed"}, firing(t, well, also(scrape(t, cfg.Admin), well, "doona_relay_ready"), cfg.Clock()))
	stop()

	cfg.SignKey = c.VerifierSign()
	cfg.Tasks = []server.TaskConfig{{File: filepath.Join(c.Dir, "task0.bundle"), HPKEKeys: c.VerifierKeys("task0")}}
	idle, err := server.New(cfg)
	require.NoError(t, err)
	defer idle.Close()
	admin := httptest.NewServer(idle.AdminHandler())
	defer admin.Close()
	require.Contains(t, firing(t, well, scrape(t, strings.TrimPrefix(admin.URL, "http://")), time.Now()),
		"DoonaVerifierNotReady")
}
