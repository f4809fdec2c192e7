package handout

import (
	"net/http"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// HandleUpdates tells a next hop which epochs of shared tasks are open, and how many sealed batches each has.
func (out *Server) HandleUpdates(w http.ResponseWriter, req *http.Request) error {
	own, err := service.PathKey[task.SignKey](req, "relay")
	if err != nil {
		return err
	}
	hop, err := service.PathKey[task.SignKey](req, "hop")
	if err != nil {
		return err
	}
	nonce, ok := handover.Verify(hop, signing.Updates, handover.UpdatesBody(own, hop), req.Header.Get(handover.Header))
	shared := out.Hosted().SharedWith(own, hop)
	if !ok || len(shared) == 0 { // before Fresh: strangers' nonces take no space
		return problem.New(problem.Unauthorized, "")
	}
	if err := out.host.Fresh(req.Context(), hop, nonce); err != nil {
		return err
	}
	if back := out.Store.StateRollback(); back != nil {
		return back
	}
	raw, err := codec.Marshal(out.statusOf(shared))
	if err != nil {
		return err
	}
	for _, s := range shared {
		s.AskedNow()
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("ETag", handover.StatusTag(raw))
	if req.Header.Get("If-None-Match") == handover.StatusTag(raw) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return service.Write(w, codec.MediaType, raw)
}

// statusOf returns the open epochs of tasks, at most MaxOpenEpochs.
func (out *Server) statusOf(hosted []*tasks.Hosted) *handover.UpstreamStatus {
	status := &handover.UpstreamStatus{Instance: out.instance[:], Epochs: []handover.OpenEpoch{}}
	latest := out.Clock.Read().Latest
	for _, s := range hosted {
		for e := range s.EachEpoch() {
			start, _ := e.Window()
			if latest.Before(start) {
				break
			}
			if len(status.Epochs) == handover.MaxOpenEpochs { // the next hop asks for the other epochs by itself
				return status
			}
			if e.State() < store.StateComplete && !e.RolledBack() {
				one := handover.OpenEpoch{TaskID: s.ID[:], Epoch: e.Number, Batches: e.Sealed()}
				status.Epochs = append(status.Epochs, one)
			}
		}
	}
	return status
}
