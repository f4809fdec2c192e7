package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
)

// folder is a folder that the relay writes to. field is the setting that names it.
type folder struct {
	field, path string
	created     bool // the relay creates it when it needs it
}

// folders lists the folders that the relay writes to. These are the folders of the store, the secret and the HPKE keys,
// because the relay replaces those files when it erases keys, and those of successors, owners and scratch files.
func (s *setup) folders() []folder {
	out := []folder{{"secret", filepath.Dir(s.cfg.Secret), false}}
	if path, ok := strings.CutPrefix(s.cfg.Store, service.SchemeSQLite); ok {
		out = append(out, folder{"store", filepath.Dir(path), false})
	}
	out = append(out, folder{"scratch", s.cfg.Scratch, false})
	for _, o := range s.cfg.Owners {
		out = append(out, folder{"owners.folder", o.Folder, true})
	}
	for _, t := range s.cfg.Tasks {
		if keys := cmp.Or(t.HPKEKeys, s.cfg.HPKEKeys); keys != "" { // empty if the relay waits to join a stream
			out = append(out, folder{"hpke_keys", filepath.Dir(keys), false})
		}
		if t.Successors != "" {
			out = append(out, folder{"successors", t.Successors, true})
		}
	}
	return out
}

// CheckFolders returns an error unless the relay can write files in every folder that it writes to. It removes its test
// files.
func (i *Inspected) CheckFolders() error { return i.checkFolders() }

// checkFolders is the check of `check-config` and of `serve`.
func (s *setup) checkFolders() error {
	for _, f := range s.folders() {
		if _, err := os.Stat(f.path); err != nil && f.created {
			continue
		}
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

// checkScratch returns an error while the relay cannot permute a large batch.
func (s *setup) checkScratch() error { return folder{"scratch", s.cfg.Scratch, false}.check() }

// tighten closes files of keys to their group: the configured files, and those in the folders of successors and owners.
func (s *setup) tighten() error {
	files := append([]string{s.cfg.SignKey, s.cfg.HPKEKeys, s.cfg.Secret}, s.cfg.OldSignKeys...)
	var folders []string
	for _, t := range s.cfg.Tasks {
		files, folders = append(files, t.HPKEKeys), append(folders, t.Successors)
	}
	for _, o := range s.cfg.Owners {
		folders = append(folders, o.Folder)
	}
	return durable.CloseToGroup(s.cfg.Log, files, folders)
}

// CheckServer returns an error if the relay could not serve from the database server of its store.
func (i *Inspected) CheckServer(ctx context.Context) error { return i.store.CheckServer(ctx) }

// CheckSecret returns an error if the store exists but its secret file is missing or belongs to another store, for
// example because a start of the relay created a new file. A store cannot be read without its secret.
func (i *Inspected) CheckSecret(ctx context.Context) error {
	if i.vault != nil {
		if other, err := i.store.OtherSecret(ctx, i.vault); err != nil || !other {
			return err
		}
	} else if name, err := i.store.Name(ctx); err != nil || name == "" {
		return err
	}
	return invalid.Field("secret", i.cfg.Secret, "the file that the store was created with. If it is lost, move the "+
		"store away and run relay end-epochs")
}

// check writes a test file and removes it. Its error does not contain the file's random name, so that the log omits its
// repetitions. A full disk is an error only for a caller that needs the space: see [durable.Full].
func (f folder) check() error {
	file, err := os.CreateTemp(f.path, ".check-*")
	if err == nil {
		_, err = file.Write(make([]byte, 4096))
		err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if err == nil {
		return nil
	}
	if in := new(fs.PathError); errors.As(err, &in) {
		err = in.Err
	}
	return fmt.Errorf("%w (%w)", invalid.Field(f.field, f.path, "a folder that this user can write to"), err)
}
