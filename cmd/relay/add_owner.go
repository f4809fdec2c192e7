package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/relay"
)

// addOwner adds an owner to relay.yaml, whose content is config: it writes a new file, checks it as check-config does,
// and renames it. After an error relay.yaml is unchanged.
func addOwner(ctx context.Context, path string, config relay.Config, owner relay.OwnerConfig) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("couldn't read the configuration: %w", err)
	}
	line, err := ownerLine(path, owner)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a link, which Join does not replace: add to its owners: %s", path, line)
	}
	if _, err := os.Lstat(owner.Folder); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s exists, but must be a new folder: add the owner with another one: %s", owner.Folder, line)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("couldn't read the configuration: %w", err)
	}
	next := path + ".new"
	if err := durable.WriteFile(next, withOwner(text, line), info.Mode().Perm()); err != nil {
		return fmt.Errorf("couldn't write the new configuration: %w", err)
	}
	err = durable.SetOwner(next, info) // root may run Join for a relay of another user
	if err == nil {
		err = checkAdded(ctx, next, config, owner, line)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s is unchanged: %w", path, err), os.Remove(next))
	}
	return durable.Rename(next, path)
}

// ownerLine returns the owner as an entry of relay.yaml. Its folder is relative if it is below the file's.
func ownerLine(path string, owner relay.OwnerConfig) (string, error) {
	folder := owner.Folder
	if base := filepath.Dir(path); filepath.IsAbs(folder) == filepath.IsAbs(base) {
		within, err := filepath.Rel(base, folder)
		if err != nil {
			return "", fmt.Errorf("couldn't name the owner's folder: %w", err)
		}
		if !strings.HasPrefix(within, "..") {
			folder = within
		}
	}
	return fmt.Sprintf("- {owner: %q, folder: %q, tasks: %d}", owner.Owner, folder, owner.Tasks), nil
}

var (
	ownersKey  = regexp.MustCompile(`(?m)^owners:[ \t]*(#.*)?\r?$`)
	firstEntry = regexp.MustCompile(`^(?:[ \t]*(?:#.*)?\r?\n)*([ ]*)- `)
)

// withOwner adds an entry to the owners in a configuration's text, and leaves all else as it is. checkAdded finds texts
// for which this does not work.
func withOwner(text []byte, line string) []byte {
	at := ownersKey.FindIndex(text)
	if at == nil {
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		return append(text, "owners:\n  "+line+"\n"...)
	}
	before, after := text[:at[1]], text[at[1]:]
	indent := "  "
	if m := firstEntry.FindSubmatch(after); m != nil {
		indent = string(m[1])
	}
	return bytes.Join([][]byte{before, []byte("\n" + indent + line), after}, nil)
}

// checkAdded returns an error unless the configuration in a file is good, and is config with one more owner.
func checkAdded(ctx context.Context, path string, config relay.Config, owner relay.OwnerConfig, line string) error {
	next, err := relay.LoadConfig(path)
	if err == nil {
		want := config
		want.Owners = append([]relay.OwnerConfig{owner}, config.Owners...)
		if !reflect.DeepEqual(want, next) {
			err = errors.New("its owners are written in another way than one entry per line")
		}
	}
	if err != nil {
		return fmt.Errorf("Join couldn't add the owner: add to owners: %s: %w", line, err)
	}
	_, err = checked(ctx, &configFlags{config: path})
	return err
}
