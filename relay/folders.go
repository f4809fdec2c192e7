package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
)

// CheckFolders returns an error unless the relay can create files in every folder that it writes to. These are the
// folders of the store, the secret and the HPKE keys, because the relay replaces those files when it erases keys. The
// existing folders of successors, owners and scratch files must be writable too. CheckFolders removes its test files.
func (i *Inspected) CheckFolders() error {
	if err := checkFolder("secret", filepath.Dir(i.cfg.Secret)); err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(i.cfg.Store, service.SchemeSQLite); ok {
		if err := checkFolder("store", filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := checkFolder("scratch", i.cfg.Scratch); err != nil {
		return err
	}
	for _, o := range i.cfg.Owners {
		if _, err := os.Stat(o.Folder); err != nil {
			continue // the relay will create it
		}
		if err := checkFolder("owners.folder", o.Folder); err != nil {
			return err
		}
	}
	for _, t := range i.cfg.Tasks {
		if keys := cmp.Or(t.HPKEKeys, i.cfg.HPKEKeys); keys != "" { // empty if the relay waits to join a stream
			if err := checkFolder("hpke_keys", filepath.Dir(keys)); err != nil {
				return err
			}
		}
		if _, err := os.Stat(t.Successors); err != nil {
			continue // the relay will create it
		}
		if err := checkFolder("successors", t.Successors); err != nil {
			return err
		}
	}
	return nil
}

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

func checkFolder(field, folder string) error {
	file, err := os.CreateTemp(folder, ".check-*")
	if err != nil {
		return invalid.Field(field, folder, fmt.Sprintf("a folder that this user can write to (%v)", err))
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
