package relay

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/relay/internal/tasks"
)

// ReloadStatus says how a running relay's reloads of its configuration went.
type ReloadStatus struct {
	// Applied is when the last successful reload was, to the minute; zero if there was none.
	Applied time.Time `json:"applied,omitzero"`

	// Failed says why the last reload changed nothing. It is empty if the last reload succeeded.
	Failed string `json:"failed,omitempty"`
}

// String describes the status in words.
func (s ReloadStatus) String() string {
	if s.Failed != "" {
		return "reload failed: " + s.Failed + "; the relay uses the earlier configuration"
	}
	return "the configuration was reloaded at " + s.Applied.Format("2006-01-02 15:04 UTC")
}

// reloads remembers how reloads went.
type reloads struct {
	mu     sync.Mutex // held during a reload
	status atomic.Pointer[ReloadStatus]
}

// Reload applies the owners of the configuration that read returns. If the configuration is invalid or differs in
// anything else, Reload changes nothing. The relay then works as before, and says so in its status until a later reload
// succeeds. Only the operator can cause a reload: no request does.
func (r *Relay) Reload(read func() (Config, error)) error {
	r.reloads.mu.Lock()
	defer r.reloads.mu.Unlock()
	status := ReloadStatus{}
	if last := r.reloads.status.Load(); last != nil {
		status = *last
	}
	err := r.reload(read)
	if err == nil {
		status = ReloadStatus{Applied: r.cfg.Clock().UTC().Truncate(time.Minute)}
		r.cfg.Log.Info("configuration reloaded")
	} else {
		status.Failed = err.Error()
		r.cfg.Log.Error("couldn't reload the configuration: nothing changed", "error", err)
	}
	r.reloads.status.Store(&status)
	return err
}

func (r *Relay) reload(read func() (Config, error)) error {
	next, err := read()
	if err != nil {
		return err
	}
	next.Clock, next.Log = r.cfg.Clock, r.cfg.Log
	if err := next.validate(); err != nil {
		return err
	}
	if err := r.cfg.checkSame(&next); err != nil {
		return err
	}
	return r.host.SetOwners(next.ownerSources())
}

// checkSame returns an error that names the first setting in relay.yaml, except owners, that differs from next.
func (c *Config) checkSame(next *Config) error {
	now, then := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for _, field := range reflect.VisibleFields(now.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "" || name == "-" || name == "owners" {
			continue
		}
		a, b := now.FieldByIndex(field.Index), then.FieldByIndex(field.Index)
		if a.Kind() == reflect.Slice && a.Len()+b.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return fmt.Errorf("%s has changed: without a restart, only owners may change", name)
		}
	}
	return nil
}

func (c *Config) ownerSources() (out []tasks.OwnerSource) {
	for _, o := range c.Owners {
		out = append(out, tasks.OwnerSource{Owner: o.Owner, Folder: o.Folder, Tasks: o.Tasks, Suspended: o.Suspended,
			Recovery: o.Recovery, Candidates: o.Candidates, OwnerLimits: tasks.OwnerLimits{
				ReportsPerSecond: o.ReportsPerSecond, Bytes: int64(o.Bytes), Dummies: o.Dummies}})
	}
	return out
}
