package relay

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
)

// A full disk must keep no key alive, nor the next hop from confirming what it has. So the relay keeps room for that on
// the disks that it erases from, and gives it back where one is full: see [durable.Reserve]. Until it has been able to
// take it again, it takes no report, seals and pulls nothing, and is not ready: what is left is for erasing alone.

// keepRoom says how much is kept where, by what there is to erase: in the folder of an SQLite store what that needs; in
// this one and those of the secret, of keys and of successors what these need.
func (s *setup) keepRoom(in *durable.Reserve) error {
	files := []string{s.cfg.Secret}
	for _, t := range s.cfg.Tasks {
		if file := cmp.Or(t.HPKEKeys, s.cfg.HPKEKeys); file != "" { // none: it may only come to join a stream
			files = append(files, file)
		}
		if info, err := os.Stat(t.Successors); err == nil && info.IsDir() { // one made later is no disk of its own
			files = append(files, filepath.Join(t.Successors, "keys"))
		}
	}
	keys := durable.KeyRoom(files...)
	if path, ok := strings.CutPrefix(s.cfg.Store, service.SchemeSQLite); ok {
		if err := in.Keep(path, store.EraseRoom()+keys); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := in.Keep(file, keys); err != nil {
			return err
		}
	}
	return s.KeepRoom(in)
}

// refillLoop takes what is missing of the room that is kept, as far as there is any. It does not wait for the turns of
// Loop, which may be long where many epochs have ended.
func (r *Relay) refillLoop(ctx context.Context) {
	tick := time.NewTicker(r.beat())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.monitor.Logged(ctx, "couldn't reserve disk space for erasing", r.monitor.Reserve.Take())
		}
	}
}
