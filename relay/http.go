package relay

import (
	"errors"
	"net/http"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/problem"
)

// answer is [service.Answer], but also counts and logs failures of the store, and reports state rollbacks to the
// requester.
func (r *Relay) answer(handle service.Handler) http.HandlerFunc {
	return service.Answer(r.cfg.Log, r.withProblems(handle))
}

// withProblems returns the errors of a handler as the problems that requesters get.
func (r *Relay) withProblems(handle service.Handler) service.Handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		err := handle(w, req)
		if err == nil {
			return nil
		}
		if back := new(store.StateRollbackError); errors.As(err, &back) {
			return stopped(back)
		}
		if req.Context().Err() == nil && r.monitor.Failed(err) {
			r.cfg.Log.Error("couldn't answer a request", "error", err)
			return r.monitor.TurnAway(problem.Overloaded)
		}
		return err
	}
}

// stopped returns the problem that tells a requester about a state rollback.
func stopped(back *store.StateRollbackError) error {
	return problem.New(problem.StateRolledBack, "%s", back.Cause).Retry(tasks.RollbackRetry)
}

// open is [Relay.answer] for resources that web pages of any origin may read.
func (r *Relay) open(handle service.Handler) http.HandlerFunc {
	return r.answer(func(w http.ResponseWriter, req *http.Request) error {
		service.AllowOrigins(w)
		return handle(w, req)
	})
}

// Handler returns the public HTTP interface. It accepts reports only while Run runs.
func (r *Relay) Handler() http.Handler { return display.ProtectPublic(r.mux()) }

func (r *Relay) mux() *service.Mux {
	mux := &service.Mux{}
	mux.HandleFunc("GET "+endpoint.TaskPath, r.open(r.desk.HandleTask))
	mux.HandleFunc("GET "+endpoint.BlockPath, r.open(r.desk.HandleBlock))
	mux.HandleFunc("GET "+endpoint.AllKeysPath, r.open(r.desk.HandleAllKeys))
	mux.HandleFunc("GET "+endpoint.KeysPath, r.open(r.desk.HandleKeys))
	mux.HandleFunc("OPTIONS "+endpoint.ReportsPath, service.Answer(r.cfg.Log, r.counted(r.ingress.HandlePreflight, true)))
	mux.HandleFunc("POST "+endpoint.ReportsPath, service.Answer(r.cfg.Log, r.counted(r.ingress.HandleReport, false)))
	mux.HandleFunc("GET "+endpoint.SetPath, r.open(r.desk.HandleSet))
	mux.HandleFunc("GET "+endpoint.SetKeysPath, r.open(r.desk.HandleSetKeys))
	mux.HandleFunc("OPTIONS "+endpoint.SetReportsPath,
		service.Answer(r.cfg.Log, r.counted(r.ingress.HandleSetPreflight, true)))
	mux.HandleFunc("POST "+endpoint.SetReportsPath,
		service.Answer(r.cfg.Log, r.counted(r.ingress.HandleSetReport, false)))
	mux.HandleFunc("GET "+endpoint.BatchPath, r.answer(r.handout.HandlePull))
	mux.HandleFunc("POST "+endpoint.ConfirmPath, r.answer(r.handout.HandleConfirm))
	mux.HandleFunc("GET "+endpoint.EndPath, r.answer(r.handout.HandleEnd))
	mux.HandleFunc("GET "+endpoint.UpdatesPath, r.answer(r.handout.HandleUpdates))
	mux.HandleFunc("GET "+endpoint.TimePath, r.open(r.desk.HandleTime))
	mux.HandleFunc("GET "+endpoint.StreamPath, r.open(r.desk.HandleStream))
	mux.HandleFunc("GET "+endpoint.NextKeysPath, r.answer(r.desk.HandleNextKeys))
	mux.HandleFunc("POST "+endpoint.SuccessorsPath, r.answer(r.desk.HandleSuccessor))
	mux.HandleFunc("POST "+endpoint.StatementsPath, r.answer(r.desk.HandleStatement))
	mux.HandleFunc("GET "+endpoint.OwnersKeysPath, r.answer(r.desk.HandleOwnersKeys))
	mux.HandleFunc("POST "+endpoint.OwnersTasksPath, r.answer(r.desk.HandleOwnersTask))
	mux.HandleFunc("POST "+endpoint.WithdrawPath, r.answer(r.desk.HandleWithdrawal))
	mux.HandleFunc("POST "+endpoint.OwnersSetsPath, r.answer(r.desk.HandleOwnersSet))
	mux.HandleHealth(r.isReady)
	mux.HandleFunc("/", r.open(service.NotFound))
	return mux
}
