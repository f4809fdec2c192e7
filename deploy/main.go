// Command deploy writes the folder grafana: relay.json, issuer.json and verifier.json, Grafana dashboards with a
// panel for every metric of a program, from the definitions in their packages, and alerts.yaml, rules for Prometheus.
// The systemd unit and the Dockerfile are beside it; docs/deployment.md is the guide.
//
//	go generate ./deploy
package main

//go:generate go run .

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier/server"
)

func main() {
	for name, content := range map[string][]byte{
		"relay.json":    dashboard("relay", relay.Metrics()),
		"issuer.json":   dashboard("issuer", issuer.Metrics()),
		"verifier.json": dashboard("verifier", server.Metrics()),
		"alerts.yaml":   alerts(),
	} {
		if err := os.WriteFile(filepath.Join("grafana", name), content, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

type object = map[string]any

// dashboard returns the dashboard of a program, with two panels in each row.
func dashboard(program string, metrics []service.Metric) []byte {
	var panels []object
	prefix := "doona_" + program + "_"
	for i, m := range metrics {
		panels = append(panels, object{
			"id": i + 1, "type": "timeseries", "title": strings.TrimPrefix(m.Name, prefix), "description": m.Help,
			"datasource": object{"type": "prometheus", "uid": "${source}"}, "targets": targets(m),
			"fieldConfig": object{"defaults": object{"unit": unit(m)}},
			"gridPos":     object{"x": 12 * (i % 2), "y": 8 * (i / 2), "w": 12, "h": 8},
		})
	}
	out, err := json.MarshalIndent(object{
		"title": "Doona " + program, "uid": "doona-" + program, "schemaVersion": 39, "refresh": "30s",
		"time": object{"from": "now-6h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "source", "type": "datasource", "query": "prometheus"},
			{"name": "instance", "type": "query", "datasource": object{"type": "prometheus", "uid": "${source}"},
				"query": "label_values(" + prefix + "ready, instance)", "includeAll": true, "multi": true},
		}},
	}, "", " ")
	if err != nil {
		panic(err)
	}
	return append(out, '\n')
}

// unit returns the unit of a panel's values. The panel of a counter shows the counter's rate.
func unit(m service.Metric) string {
	if m.Kind == service.KindCounter {
		return "ops"
	}
	return m.Unit
}

func targets(m service.Metric) (out []object) {
	by := strings.Join(append([]string{"instance"}, m.Labels...), ", ")
	legend := "{{" + strings.Join(append([]string{"instance"}, m.Labels...), "}} {{") + "}}"
	add := func(expr, legend string) {
		out = append(out, object{"refId": string(rune('A' + len(out))), "expr": expr, "legendFormat": legend})
	}
	const where = `{instance=~"$instance"}`
	switch {
	case m.Kind == service.KindCounter:
		add(fmt.Sprintf("sum by (%s) (rate(%s%s[5m]))", by, m.Name, where), legend)
	case m.Kind == service.KindHistogram:
		for _, q := range []string{"0.5", "0.99"} {
			add(fmt.Sprintf("histogram_quantile(%s, sum by (le, %s) (rate(%s_bucket%s[5m])))", q, by, m.Name, where),
				"p"+q[2:]+" "+legend)
		}
	case m.Unit == service.UnitTime:
		add(fmt.Sprintf("%s%s * 1000", m.Name, where), legend) // Grafana counts milliseconds
	default:
		add(m.Name+where, legend)
	}
	return out
}

// alert is a rule: the condition, how long it must hold, and what to do.
type alert struct{ name, expr, lasting, summary string }

// The severities of alerts: page means that reports, keys or results are being lost now.
const (
	page   = "page"
	ticket = "ticket"
)

// severity returns an alert's severity.
func (a alert) severity() string {
	for _, end := range []string{"NotReady", "StateRollback", "StoreErrors", "Refusing", "Gone", "ClockInDoubt", "Overloaded"} {
		if strings.HasSuffix(a.name, end) {
			return page
		}
	}
	return ticket
}

// runbook is where docs/runbook.md is published. Each alert has a section there.
const runbook = "https://github.com/doona-dp/doona/blob/main/docs/runbook.md"

// risen returns a condition that holds for a day after a gauge has risen, also if its series has just appeared.
func risen(metric string) string {
	return fmt.Sprintf("%s > (%s offset 1d or 0 * %s)", metric, metric, metric)
}

// rules are all alert rules, in the order of their file.
var rules = []alert{
	{"DoonaRelayNotReady", "doona_relay_ready == 0", "2m",
		"the relay accepts no reports: see its log, and whether its disk is full"},
	{"DoonaRelayRefusing", "doona_relay_refusing > 0", "1m",
		"all or most reports of a task are refused: relay status says why"},
	{"DoonaRelayStateRollback", "doona_relay_rollback_detected == 1", "0m",
		"state rollback: the store or key files are older copies, and the relay or an epoch has stopped: see relay end-epochs --help"},
	{"DoonaRelayStoreErrors", "rate(doona_relay_store_errors_total[5m]) > 0", "2m",
		"transactions fail: the disk is full, or the database does not answer"},
	{"DoonaRelayStoreUnreadable", "doona_relay_store_unreadable == 1", "1m",
		"the store does not answer: relay status lacks the tasks, and their metrics keep their last values"},
	{"DoonaRelayOverloaded", `rate(doona_relay_overloaded_total{problem="overloaded"}[5m]) > 1`, "10m",
		"the relay is full and refuses reports: see docs/deployment.md on capacity"},
	{"DoonaRelayEpochsEnd", "doona_relay_epochs_end_timestamp_seconds - time() < 14 * 86400", "1h",
		"the last epoch of a task, of this owner if one is named, ends within two weeks: agree on the next task"},
	{"DoonaRelayNotFetched", "doona_relay_unconfirmed_batches > 0", "24h",
		"sealed batches have waited a day for the next hop: relay status names their tasks"},
	{"DoonaRelayNoAnswer", "doona_relay_last_answer_timestamp_seconds > 0 and time() - " +
		"doona_relay_last_answer_timestamp_seconds > 3600", "10m",
		"the upstream relay has not answered for an hour, or since the start"},
	{"DoonaRelayGone", "max_over_time(doona_relay_ready[1d]) unless doona_relay_ready", "2m",
		"a relay that answered within the last day does not answer: its process or its machine is down"},
	{"DoonaIssuerGone", "max_over_time(doona_issuer_ready[1d]) unless doona_issuer_ready", "2m",
		"an issuer that answered within the last day does not answer: its process or its machine is down"},
	{"DoonaVerifierGone", "max_over_time(doona_verifier_ready[1d]) unless doona_verifier_ready", "2m",
		"a verifier that answered within the last day does not answer: its process or its machine is down"},
	{"DoonaRelayFinding", risen("doona_relay_findings"), "0m",
		"a batch of the upstream relay was wrong: see relay status"},
	{"DoonaRelayOwnerTaskLimit", "increase(doona_relay_owner_tasks_rejected_total[1h]) > 0", "0m",
		"an approved owner asked for more tasks than it has task slots, or for too many dummies: see owners in relay status"},
	{"DoonaRelayOwnerLimited", "increase(doona_relay_owner_limited_total[10m]) > 0", "0m",
		"reports of this owner's tasks are refused: the owner is over a limit in relay.yaml"},
	{"DoonaRelayReloadFailed", "doona_relay_reload_failed == 1", "0m",
		"a changed relay.yaml is not applied, and the relay works as before: relay status says why"},
	{"DoonaRelayUnscrubbed", "doona_relay_unscrubbed == 1", "1h",
		"deleted rows stay in the log of the relay's store, mostly because another program reads it: see relay status"},
	{"DoonaRelaySetIncomplete", `doona_relay_sets{state="incomplete"} > 0`, "10m",
		"a set lacks a table and takes no reports: its owner must hand it over again"},
	{"DoonaRelaySetUnpermuted", `doona_relay_sets{state="unpermuted"} > 0`, "1h",
		"the store still tells which slots of a past day came in one submission: relay status says why"},
	{"DoonaRelayClockInDoubt", "doona_relay_clock_in_doubt > 0", "1m",
		"the relay does not know the time, and accepts no reports: see docs/relay.md on time"},
	{"DoonaRelayClock", "abs(doona_relay_clock_offset_seconds) > 30", "5m",
		"this machine's clock and a peer's differ: compare both with a third clock"},
	{"DoonaIssuerClockInDoubt", "doona_issuer_clock_in_doubt > 0", "1m",
		"the issuer does not know the time, and gives no tokens: see docs/relay.md on time"},
	{"DoonaIssuerClock", "abs(doona_issuer_clock_offset_seconds) > 30", "5m",
		"this machine's clock and a peer's differ: compare both with a third clock"},
	{"DoonaIssuerNotReady", "doona_issuer_ready == 0", "2m", "the issuer gives no tokens: see its log"},
	{"DoonaIssuerStoreErrors", "rate(doona_issuer_store_errors_total[5m]) > 0", "2m",
		"transactions fail: is the disk full?"},
	{"DoonaIssuerEpochsEnd", "doona_issuer_epochs_end_timestamp_seconds - time() < 14 * 86400", "1h",
		"the task's last epoch and its keys end within two weeks: agree on the next task"},
	{"DoonaIssuerStreamStuck", "doona_issuer_stream_stuck > 0", "15m",
		"a stream cannot be read, or continues without this issuer: see its log"},
	{"DoonaVerifierNotReady", "doona_verifier_ready == 0", "2m",
		"the verifier cannot pull or store batches: see its log, and whether its disk is full"},
	{"DoonaVerifierRelayUnreachable", "doona_verifier_relay_unreachable > 0", "1h",
		"the last relay has not answered for an hour, or refuses the verifier: see the verifier's log"},
	{"DoonaVerifierLate", "doona_verifier_epochs_late > 0", "1h",
		"the signed end of an epoch is overdue: ask the relays' operators which hop has the epoch"},
	{"DoonaVerifierFinding", risen("doona_verifier_findings"), "0m",
		"something did not add up: see the findings on the task's page"},
	{"DoonaVerifierNotConfirmed", "doona_verifier_unconfirmed_batches > 0", "24h",
		"the last relay does not accept confirmations, and so keeps batches that it should delete"},
	{"DoonaVerifierEpochsEnd", "doona_verifier_epochs_end_timestamp_seconds - time() < 14 * 86400", "1h",
		"the task's last epoch and its keys end within two weeks: agree on the next task"},
	{"DoonaVerifierBudgetSpent", "doona_verifier_epochs_withheld > 0", "1h",
		"the budget is too small for an epoch, whose results are withheld: raise it, or end the task"},
	{"DoonaVerifierStreamStuck", "doona_verifier_stream_stuck > 0", "15m",
		"a stream cannot be read, or continues without this verifier: see its log"},
	{"DoonaVerifierWebhookFailing", "doona_verifier_webhook_failed_attempts > 0", "30m",
		"the webhook cannot deliver a result, and later ones wait: /status has the error"},
	{"DoonaVerifierWebhookGaveUp", risen("doona_verifier_webhook_given_up"), "0m",
		"the webhook gave a result up: ask for the results since then"},
	{"DoonaVerifierSignInsRefused", "increase(doona_verifier_sign_ins_refused_total[1h]) > 30", "0m",
		"somebody guesses the password of the verifier's pages, or a program has an old one"},
}

func alerts() []byte {
	var b bytes.Buffer
	b.WriteString("# Written by go generate ./deploy; for Prometheus' rule_files.\ngroups:\n  - name: doona\n    " +
		"rules:\n")
	for _, a := range rules {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n        for: %s\n        labels:\n          severity: %s\n"+
			"        annotations:\n          summary: %q\n          runbook_url: %s#%s\n", a.name, a.expr, a.lasting,
			a.severity(), a.summary, runbook, strings.ToLower(a.name))
	}
	return b.Bytes()
}
