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

// A full disk must not prevent the relay from erasing keys, or the next hop from confirming batches. So the relay
// reserves space on the disks that it erases from, and releases it when one is full: see [durable.Reserve]. Until the
// space is reserved again, the relay only erases: it accepts no report, seals and pulls nothing, and is not ready.

// reserveSpace sets how much disk space to reserve: for the store and the keys in the folder of an SQLite store, for
// the keys in the folders of the secret, the keys and the successors.
func (s *setup) reserveSpace(in *durable.Reserve) error {
	files := []string{s.cfg.Secret}
	for _, t := range s.cfg.Tasks {
		if file := cmp.Or(t.HPKEKeys, s.cfg.HPKEKeys); file != "" { // empty if the relay waits to join a stream
			files = append(files, file)
		}
		if info, err := os.Stat(t.Successors); err == nil && info.IsDir() { // a later folder is on the same disk
			files = append(files, filepath.Join(t.Successors, "keys"))
		}
	}
	keys := durable.KeyReserve(files...)
	if path, ok := strings.CutPrefix(s.cfg.Store, service.SchemeSQLite); ok {
		if err := in.Add(path, store.EraseRoom()+keys); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := in.Add(file, keys); err != nil {
			return err
		}
	}
	return s.KeepRoom(in)
}

// recheckReserve is how often refillLoop looks for reserve files that somebody has removed. With many owners these are
// hundreds of files.
const recheckReserve = 10 * time.Second

// refillLoop reserves released space again as soon as the disk has it. It does not wait for the ticks of the epochs'
// loop, which take long if many epochs have ended.
func (r *Relay) refillLoop(ctx context.Context) {
	tick := time.NewTicker(r.beat())
	defer tick.Stop()
	for filled := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if r.monitor.Reserve.Whole() && time.Since(filled) < recheckReserve {
				continue
			}
			filled = time.Now()
			r.monitor.Logged(ctx, "couldn't reserve disk space for erasing", r.monitor.Reserve.Fill())
		}
	}
}
