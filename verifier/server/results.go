package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
)

// maxResults is the maximum number of results in an answer.
const maxResults = 100

// publication says when the result of an epoch was published, in milliseconds since 1970. No two have the same moment.
type publication struct {
	Task   string `json:"task"` // the task's id
	Epoch  uint64 `json:"epoch"`
	Moment int64  `json:"moment"`
}

func (p publication) time() time.Time { return time.UnixMilli(p.Moment).UTC() }

// published is the list of publications, in the file "published" of the data folder. It has nothing of clients. It
// implements [report.Results].
type published struct {
	server *Server
	path   string

	floor int64 // moments are later: the webhook delivered up to here

	mu   sync.Mutex // guards list
	list []publication
}

const publishedVersion = 1

// publishedFile is the form of the file.
type publishedFile struct {
	Version   int           `json:"version"`
	Published []publication `json:"published"`
}

// loadPublished reads the list, which need not exist.
func (s *Server) loadPublished() error {
	p := &published{server: s, path: filepath.Join(s.cfg.Data, "published")}
	s.published, s.site.Results = p, p
	raw, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var file publishedFile
	if err == nil {
		in := json.NewDecoder(bytes.NewReader(raw))
		in.DisallowUnknownFields()
		err = in.Decode(&file)
	}
	if err == nil && file.Version != publishedVersion {
		err = fmt.Errorf("version %d: want %d", file.Version, publishedVersion)
	}
	last := int64(0)
	for _, one := range file.Published {
		if err == nil && one.Moment <= last {
			err = fmt.Errorf("moment %d after %d: want ascending moments", one.Moment, last)
		}
		last = one.Moment
	}
	if err != nil {
		return fmt.Errorf("couldn't read %s: %w: restore it from a backup; without it, all results get new moments", p.path, err)
	}
	p.list = file.Published
	return nil
}

// note adds the results that were published since the last call. The list is on disk before anybody can see it. A new
// moment is later than all others, also if the clock was turned back.
func (p *published) note() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Clone(p.list)
	known := map[publication]bool{}
	for _, one := range list {
		one.Moment = 0
		known[one] = true
	}
	for _, t := range p.server.hostedTasks() {
		epochs, _, err := verifier.Published(t.verifier)
		if err != nil {
			return err
		}
		for _, epoch := range epochs {
			one := publication{Task: t.open.ID.String(), Epoch: epoch}
			if known[one] {
				continue
			}
			one.Moment = max(p.server.cfg.Clock().UnixMilli(), p.floor+1)
			if n := len(list); n > 0 {
				one.Moment = max(one.Moment, list[n-1].Moment+1)
			}
			list = append(list, one)
		}
	}
	if len(list) == len(p.list) {
		return nil
	}
	raw, err := json.Marshal(publishedFile{publishedVersion, list})
	if err == nil {
		err = durable.WriteFile(p.path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("couldn't write down which results are published: %w", err)
	}
	p.list = list
	return nil
}

// last returns the moment of the last publication, or 0.
func (p *published) last() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return 0
	}
	return p.list[len(p.list)-1].Moment
}

// maxAhead is how far a moment in a request may be ahead of this clock: the clocks of others differ.
const maxAhead = 24 * time.Hour

// Until implements [report.Results]. The clock may have been turned back since the latest result.
func (p *published) Until() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := p.server.cfg.Clock()
	if n := len(p.list); n > 0 && p.list[n-1].time().After(until) {
		until = p.list[n-1].time()
	}
	return until.Add(maxAhead)
}

// After implements [report.Results].
func (p *published) After(since time.Time, of string) (out []*report.Result, err error) {
	if err := p.note(); err != nil {
		return nil, err
	}
	for _, one := range p.after(since) {
		if of != "" && of != one.Task {
			continue
		}
		r, err := p.result(one)
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, r)
		}
		if len(out) == maxResults {
			break
		}
	}
	return out, nil
}

// after returns the publications after a moment.
func (p *published) after(since time.Time) []publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := slices.BinarySearchFunc(p.list, since, func(one publication, t time.Time) int {
		if one.time().After(t) {
			return 1
		}
		return -1
	})
	return p.list[at:]
}

// result returns a result; nil if its task is no longer hosted, or if the ledger does not have it any more.
func (p *published) result(one publication) (*report.Result, error) {
	tasks := p.server.hostedTasks()
	at := slices.IndexFunc(tasks, func(t *hostedTask) bool { return t.open.ID.String() == one.Task })
	if at < 0 {
		return nil, nil
	}
	t := tasks[at]
	_, rowOf, err := verifier.Published(t.verifier)
	if err != nil {
		return nil, err
	}
	row := rowOf(one.Epoch)
	if row == nil {
		return nil, nil
	}
	overview, err := t.verifier.Overview()
	if err != nil {
		return nil, err
	}
	return report.NewResult(one.time(), overview, row), nil
}

// watch notes new results at each pull interval, until ctx ends.
func (p *published) watch(ctx context.Context) {
	for {
		if err := p.note(); err != nil {
			p.server.cfg.Log.Error("couldn't note published results", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.server.cfg.PullInterval):
		}
	}
}
