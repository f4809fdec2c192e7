package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
)

// The names of the metrics and their label.
const (
	metricReady       = "doona_verifier_ready"
	metricUnreachable = "doona_verifier_relay_unreachable"
	metricContact     = "doona_verifier_last_contact_timestamp_seconds"
	metricEpochs      = "doona_verifier_epochs"
	metricEnded       = "doona_verifier_epochs_ended"
	metricLate        = "doona_verifier_epochs_late"
	metricBatches     = "doona_verifier_batches"
	metricUsers       = "doona_verifier_submissions"
	metricMessages    = "doona_verifier_messages"
	metricUnconfirmed = "doona_verifier_unconfirmed_batches"
	metricFindings    = "doona_verifier_findings"
	metricBudget      = "doona_verifier_epochs_withheld"
	metricStuck       = "doona_verifier_stream_stuck"
	metricEpochsEnd   = "doona_verifier_epochs_end_timestamp_seconds"
	metricSignIns     = "doona_verifier_sign_ins_refused_total"
	metricWaiting     = "doona_verifier_webhook_waiting"
	metricAttempts    = "doona_verifier_webhook_failed_attempts"
	metricGivenUp     = "doona_verifier_webhook_given_up"
	byTask            = "task"

	// Why a password was not accepted.
	reasonWrong = "wrong"
	reasonSlow  = "slow-down"
)

var definitions = []service.Metric{
	service.Gauge(metricReady, service.UnitCount, "1 while the verifier pulls batches and can store them."),
	service.Gauge(metricUnreachable, service.UnitCount,
		"1 while the last relay does not answer, or rejects this verifier.", byTask),
	service.Gauge(metricContact, service.UnitTime,
		"Time of the last answer of the last relay; 0 for none since the start.", byTask),
	service.Gauge(metricEpochs, service.UnitCount, "Epochs that have begun.", byTask),
	service.Gauge(metricEnded, service.UnitCount, "Epochs whose signed end and batches arrived.",
		byTask),
	service.Gauge(metricLate, service.UnitCount, "Epochs whose signed end is overdue.",
		byTask),
	service.Gauge(metricBatches, service.UnitCount, "Batches counted.", byTask),
	service.Gauge(metricUsers, service.UnitCount, "Submissions in the batches counted.", byTask),
	service.Gauge(metricMessages, service.UnitCount,
		"Slots that do not count, by fate: rejected, or withheld by relays.", byTask, "fate"),
	service.Gauge(metricUnconfirmed, service.UnitCount,
		"Batches that are stored here and not yet confirmed to the last relay.", byTask),
	service.Gauge(metricFindings, service.UnitCount,
		"Findings: batches, slots and files that did not add up, by name.", byTask, "finding"),
	service.Gauge(metricBudget, service.UnitCount,
		"Epochs whose results are withheld, because the budget of the task or its stream is too small.", byTask),
	service.Gauge(metricStuck, service.UnitCount,
		"1 while the stream that begins with the task cannot be read, or continues without this verifier.", byTask),
	service.Gauge(metricEpochsEnd, service.UnitTime,
		"End of the last epoch of the task, or of its stream. Its keys end then: sign a new task before.",
		byTask),
	service.Gauge(metricWaiting, service.UnitCount, "Published results that the webhook has not delivered yet."),
	service.Gauge(metricAttempts, service.UnitCount,
		"Failed attempts of the webhook to deliver the first waiting result."),
	service.Gauge(metricGivenUp, service.UnitCount, "Results that the webhook gave up, since it was first used."),
	service.Counter(metricSignIns,
		"Passwords for the pages that were wrong, or not checked after too many wrong ones.", "reason"),
}

// Metrics returns the definitions of a verifier's metrics, without those of the Go runtime and the process.
func Metrics() []service.Metric { return definitions }

func newMetrics(s *Server) *service.Metrics {
	m := service.NewMetrics(definitions)
	for _, reason := range []string{reasonWrong, reasonSlow} {
		m.Add(metricSignIns, 0, reason)
	}
	setWebhookGauges(m, &WebhookStatus{})
	for _, t := range s.tasks {
		beginTask(m, t)
	}
	for _, l := range s.streams {
		m.Set(metricStuck, 0, l.served[0].name())
		endsLater(m, l)
	}
	return m
}

func beginTask(m *service.Metrics, t *hostedTask) {
	m.Set(metricEpochsEnd, float64(t.open.Epochs.Over()), t.name())
	m.Set(metricBudget, 0, t.name())
}

// endsLater sets, for all tasks of a stream, the time when the newest task ends.
func endsLater(m *service.Metrics, l *hostedStream) {
	for _, t := range l.served {
		m.Set(metricEpochsEnd, float64(l.served[len(l.served)-1].open.Epochs.Over()), t.name())
	}
}

func setWebhookGauges(m *service.Metrics, w *WebhookStatus) {
	m.Set(metricWaiting, float64(w.Waiting))
	m.Set(metricAttempts, float64(w.FailedAttempts))
	m.Set(metricGivenUp, float64(w.GivenUp))
}

func (s *Server) setGauges(ctx context.Context) {
	if w := s.webhook.status(); w != nil {
		setWebhookGauges(s.metrics, w)
	}
	s.metrics.Set(metricReady, service.Flag(s.isReady(ctx) == nil).Value())
	for _, t := range s.hostedTasks() {
		p := t.puller.Progress()
		for name, value := range map[string]float64{
			metricUnreachable: service.Flag(p.Contact == verifier.ContactAway).Value(),
			metricContact:     float64(p.LastContact),
			metricEpochs:      float64(p.Epochs),
			metricEnded:       float64(p.Ended),
			metricLate:        float64(len(p.Late)),
			metricUnconfirmed: float64(p.Unconfirmed),
		} {
			s.metrics.Set(name, value, t.name())
		}
		r, err := t.verifier.Overview()
		if err != nil {
			s.cfg.Log.Error("couldn't report", "task", t.name(), "error", err)
			continue
		}
		s.setReportGauges(t.name(), r)
	}
}

func (s *Server) setReportGauges(name string, r *verifier.Report) {
	s.metrics.Set(metricBatches, float64(r.Batches), name)
	s.metrics.Set(metricUsers, float64(r.Users), name)
	s.metrics.Set(metricBudget, float64(len(r.Ledger.Withheld)), name)
	for fate, n := range map[string]uint64{"rejected": r.Rejected, "withheld": r.Withheld} {
		s.metrics.Set(metricMessages, float64(n), name, fate)
	}
	for _, f := range r.Findings {
		s.metrics.Set(metricFindings, float64(f.Count), name, string(f.Name))
	}
}

// Status is the progress of all tasks of a verifier.
type Status struct {
	Tasks   []TaskStatus   `json:"tasks"`
	Webhook *WebhookStatus `json:"webhook,omitempty"`
}

// TaskStatus is the status of one task.
type TaskStatus struct {
	ID       string            `json:"id"`   // The task's id in lower-case hex.
	Name     string            `json:"name"` // The name in the task.
	Batches  uint64            `json:"batches"`
	Users    uint64            `json:"users"`
	Verdict  string            `json:"verdict"`
	Progress verifier.Progress `json:"progress"`
	Findings []finding.Finding `json:"findings"`
}

// Status returns the progress of all tasks. It has nothing that depends on clients' answers, so it charges no epoch.
func (s *Server) Status(context.Context) (*Status, error) {
	out := &Status{Tasks: []TaskStatus{}, Webhook: s.webhook.status()}
	for _, t := range s.hostedTasks() {
		r, err := t.verifier.Overview()
		if err != nil {
			return nil, err
		}
		out.Tasks = append(out.Tasks, TaskStatus{ID: r.Task, Name: r.Name, Batches: r.Batches, Users: r.Users,
			Verdict: r.Verdict, Progress: *r.Progress, Findings: r.Findings})
	}
	return out, nil
}

// AdminHandler serves the operator's requests: /healthz, /readyz, /metrics and /status. Its address must not be public.
func (s *Server) AdminHandler() http.Handler {
	admin := service.Admin{
		Ready:        s.isReady,
		Status:       func(ctx context.Context) (any, error) { return s.Status(ctx) },
		UpdateGauges: s.setGauges,
		Metrics:      s.metrics,
		Address:      s.cfg.Admin,
		Hosts:        s.cfg.AdminHosts,
	}
	return admin.Handler(s.cfg.Log)
}

// isReady returns an error unless the server pulls batches and can store them. An unreachable last relay is no error:
// this operator cannot repair it, and a metric of its own shows it.
func (s *Server) isReady(context.Context) error {
	for _, t := range s.hostedTasks() {
		if t.puller.Failing() {
			return fmt.Errorf("couldn't store the batches of task %s: see the log", t.name())
		}
	}
	return cmp.Or(durable.CheckSpace(filepath.Join(s.cfg.Data, "verifier")), service.Ready(&s.ready))
}
