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

// A full disk must neither keep a key alive nor stop the next hop from confirming batches. So the relay reserves space
// on the disks that it erases from, and releases it when one is full: see [durable.Reserve]. Until it has reserved the
// space again, it accepts no report, seals and pulls nothing, and is not ready: the remaining space is for erasing
// only.

// reserveSpace sets how much space each folder needs: the folder of an SQLite store for the store and the keys, the
// folders of the secret, the keys and the successors for the keys.
func (s *setup) reserveSpace(in *durable.Reserve) error {
	files := []string{s.cfg.Secret}
	for _, t := range s.cfg.Tasks {
		if file := cmp.Or(t.HPKEKeys, s.cfg.HPKEKeys); file != "" { // empty if the relay has yet to join a stream
			files = append(files, file)
		}
		if info, err := os.Stat(t.Successors); err == nil && info.IsDir() { // one created later is on the same disk
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

// refillLoop reserves missing space again as soon as the disk has it. It does not wait for the ticks of Loop, which
// take long if many epochs have ended.
func (r *Relay) refillLoop(ctx context.Context) {
	tick := time.NewTicker(r.beat())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.monitor.Logged(ctx, "couldn't reserve disk space for erasing", r.monitor.Reserve.Fill())
		}
	}
}
