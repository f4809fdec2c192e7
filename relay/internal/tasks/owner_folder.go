package tasks

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ownerFolder is the folder of an approved owner. Each of these entries counts as one of the owner's tasks:
//
//	ID                         a task, with this relay's keys for it, and its successors if it begins a stream
//	asked-LABEL-KEM-N-HASH     keys for N epochs that wait for their task; HASH is the hash of their list
//
// A file set-ID is a set whose tables are tasks of the owner, and withdrawn-ID says that the owner has withdrawn the
// task. These take no slot.
//
// An entry with one of these names is complete and durable: the relay creates it in the folder "work", and then renames
// "work". Several processes of the relay share the owner's folder.
type ownerFolder struct{ path string }

const (
	bundleFile       = "task.bundle"
	keysFile         = "hpke.keys"
	successorsFolder = "next"
	askedPrefix      = "asked-"
	setPrefix        = "set-"
	workFolder       = "work"
	ownerFile        = "owner" // base name of the lock and of the reserved space
	noncesFile       = "owner.nonces"
)

// keptRequests is the number of an owner's nonces that are kept on disk.
const keptRequests = 4096

// keysKept is how long the relay keeps keys whose task has not come.
const keysKept = 24 * time.Hour

// errOwnerFolder means that the relay could not use the owner's folder: the owner's request is not at fault.
var errOwnerFolder = errors.New("couldn't use an owner's folder")

// errTaskLimit means that tasks and keys that wait for a task use all slots of the owner.
var errTaskLimit = errors.New("no task slot is free")

func (p *ownerFolder) file(names ...string) string {
	return filepath.Join(append([]string{p.path}, names...)...)
}

// taken returns the entries that use slots: the tasks, and the folders of keys that wait for a task.
func (p *ownerFolder) taken() (tasks []task.ID, asked []string, err error) {
	entries, err := os.ReadDir(p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, entry := range entries {
		id, err := hex.DecodeString(entry.Name())
		if err == nil && len(id) == len(task.ID{}) {
			tasks = append(tasks, task.ID(id))
		} else if strings.HasPrefix(entry.Name(), askedPrefix) {
			asked = append(asked, entry.Name())
		}
	}
	return tasks, asked, nil
}

// settleTime is how long ago a folder's last change must be. Several changes within the granularity of a file system's
// clock have one time, and a file server's clock may be slow.
const settleTime = 10 * time.Second

// lastChange returns when an entry was last added or removed. It returns the present time if that is unknown, or so
// recent that another change may have the same time.
func (p *ownerFolder) lastChange() time.Time {
	now := time.Now()
	info, err := os.Stat(p.path)
	if err != nil || now.Sub(info.ModTime()) < settleTime {
		return now
	}
	return info.ModTime()
}

// prepare creates the folder and its lock. It runs only at the start, and when the operator adds the owner. If the
// folder is missing later, its disk volume is missing: with a new, empty folder and lock all processes would conclude
// that the tasks were dropped.
func (p *ownerFolder) prepare() error {
	if err := durable.MakeFolder(p.path, 0o700); err != nil {
		return fault(err)
	}
	unlock, err := durable.Lock(p.file(ownerFile))
	if err != nil {
		return fault(err)
	}
	unlock()
	return nil
}

// alone locks the folder against other requests and processes, and calls do.
func (p *ownerFolder) alone(do func() error) error {
	if err := p.away(); err != nil {
		return fault(err)
	}
	unlock, err := durable.Lock(p.file(ownerFile))
	if err != nil {
		return fault(err)
	}
	defer unlock()
	return do()
}

// change locks the folder against other requests and processes, and calls do. Before that it removes expired keys, and
// files that a crash left in "work".
func (p *ownerFolder) change(now clock.Reading, do func(tasks []task.ID, asked []string) error) error {
	return p.alone(func() error {
		tasks, asked, err := p.taken()
		if err == nil {
			err = os.RemoveAll(p.file(workFolder))
		}
		expired := p.expired(asked, now)
		for _, name := range expired {
			err = errors.Join(err, p.remove(name))
		}
		if err != nil {
			return fault(err)
		}
		return do(tasks, slices.DeleteFunc(asked, func(name string) bool { return slices.Contains(expired, name) }))
	})
}

// fresh stores a request's nonce durably, and reports whether the nonce is new to all processes of the relay. Without
// that, an eavesdropper could replay an owner's requests after each restart, and fill all slots with unused keys.
func (p *ownerFolder) fresh(nonce signing.Nonce) (fresh bool, err error) {
	err = p.alone(func() error {
		kept, err := os.ReadFile(p.file(noncesFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault(err)
		}
		for seen := range slices.Chunk(kept, len(nonce)) {
			if bytes.Equal(seen, nonce[:]) {
				return nil
			}
		}
		fresh = true
		kept = append(kept, nonce[:]...)
		return fault(durable.WriteFile(p.file(noncesFile), kept[max(0, len(kept)-keptRequests*len(nonce)):], 0o600))
	})
	return fresh, err
}

// fault wraps an error to say that the folder is at fault; nil stays nil.
func fault(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errOwnerFolder, err)
	}
	return err
}

// expired returns the key folders that have certainly waited too long. A clock that jumps ahead must not remove the
// keys of a signed task.
func (p *ownerFolder) expired(asked []string, now clock.Reading) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(name string) bool {
		info, err := os.Stat(p.file(name))
		return err != nil || !now.Over(info.ModTime().Add(keysKept))
	})
}

// remove removes a folder and its contents. After a crash the whole folder remains, or some of its files in "work".
func (p *ownerFolder) remove(name string) error {
	err := durable.Rename(p.file(name), p.file(workFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has removed it
	}
	return errors.Join(err, os.RemoveAll(p.file(workFolder)))
}

// clear removes those of the asked keys that have waited for longer than keysKept.
func (p *ownerFolder) clear(asked []string, now clock.Reading) error {
	if len(p.expired(asked, now)) == 0 {
		return nil
	}
	return p.change(now, func([]task.ID, []string) error { return nil })
}

// keys returns the signed key list that an owner asks for under a label. If a list with this label already waits for
// its task, keys returns that list. Otherwise it makes a new list, which uses a slot and takes about 0.1 ms per epoch.
func (p *ownerFolder) keys(label taskfile.Label, kem task.KEM, count uint64, limit int, now clock.Reading,
	sign ed25519.PrivateKey) (raw []byte, err error) {
	name := fmt.Sprintf("%s%x-%s-%d-", askedPrefix, label, kem, count)
	err = p.change(now, func(tasks []task.ID, asked []string) (err error) {
		same := slices.IndexFunc(asked, func(other string) bool { return strings.HasPrefix(other, name) })
		switch {
		case same >= 0:
			raw, err = os.ReadFile(p.file(asked[same], keysFile+".pub"))
		case p.using(tasks, limit)+len(asked) >= limit:
			return fmt.Errorf("%w: %d tasks and %d waiting key lists, limit %d", errTaskLimit, p.using(tasks, limit),
				len(asked), limit)
		case p.manyWithdrawn():
			return fmt.Errorf("%w: %d tasks were withdrawn", errTaskLimit, mostWithdrawn)
		default:
			raw, err = p.make(name, kem, count, now.Now, sign)
		}
		return fault(err)
	})
	return raw, err
}

// make makes keys in a new folder. The folder's name is name and the hash of the key list.
func (p *ownerFolder) make(name string, kem task.KEM, count uint64, now time.Time, sign ed25519.PrivateKey) (
	raw []byte, err error) {
	work := p.file(workFolder)
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	if err := durable.MakeFolder(work, 0o700); err != nil {
		return nil, err
	}
	list, err := keyfile.NewHPKE(filepath.Join(work, keysFile), kem, count, sign)
	if err != nil {
		return nil, err
	}
	if raw, err = list.Bytes(); err != nil {
		return nil, err
	}
	if err := durable.WriteFile(filepath.Join(work, keysFile+".pub"), raw, 0o600); err != nil {
		return nil, err
	}
	if err := os.Chtimes(work, now, now); err != nil {
		return nil, err
	}
	return raw, durable.Rename(work, p.file(name+hashName(list.Hash())))
}

// take stores a task durably in the slot of the keys that it names, unless the task is there already. It first calls
// check with the folder that will hold the task; an error of check stops it.
func (p *ownerFolder) take(id task.ID, list task.KeyListHash, raw []byte, limit int, now clock.Reading,
	check func(folder string) error) error {
	return p.change(now, func(tasks []task.ID, asked []string) error {
		if err := p.checkWithdrawn(id); err != nil {
			return err
		}
		switch using := p.using(tasks, limit); {
		case slices.Contains(tasks, id):
			return nil // the owner handed it over again
		case using >= limit:
			return fmt.Errorf("%w: %d tasks, limit %d", errTaskLimit, using, limit)
		}
		folder, err := askedFor(asked, list)
		if err != nil {
			return err
		}
		if err := check(p.file(folder)); err != nil {
			return err
		}
		if err := durable.WriteFile(p.file(folder, bundleFile), raw, 0o600); err != nil {
			return fault(err)
		}
		return fault(durable.Rename(p.file(folder), p.file(id.String())))
	})
}

// drop frees a task's slot and removes its keys.
func (p *ownerFolder) drop(id task.ID, now clock.Reading) error {
	return p.change(now, func([]task.ID, []string) error { return fault(p.remove(id.String())) })
}

// dropped reports whether another process has dropped a task. If the owner's folder or its lock is missing, the disk
// volume is missing, and dropped returns false.
func (p *ownerFolder) dropped(id task.ID) bool {
	_, err := os.Stat(p.file(id.String()))
	return errors.Is(err, fs.ErrNotExist) && p.away() == nil
}

// away returns an error if the folder is missing or has no lock.
func (p *ownerFolder) away() error {
	_, err := os.Stat(p.file(ownerFile + ".lock"))
	return err
}

func hashName(list task.KeyListHash) string { return hex.EncodeToString(list[:]) }

// tableChecks are what takeSet calls before it stores anything; an error stops it.
type tableChecks struct {
	set   func() error                             // for the set
	table func(folder string, t handedTable) error // for each new table, with a folder that has its keys
}

// takeSet stores a new set and its tables durably, each table in a slot of its own. Tables with the same epochs share
// one list of keys: each gets a copy of its private keys, and the last one gets the folder. The set's file comes first,
// so that no table is ever served alone. After a crash, handing the set over again completes it.
func (p *ownerFolder) takeSet(s *HostedSet, tables []handedTable, limit int, now clock.Reading,
	checks tableChecks) error {
	return p.change(now, func(tasks []task.ID, asked []string) error {
		if err := checks.set(); err != nil {
			return err
		}
		for _, t := range tables {
			if err := p.checkWithdrawn(t.ID); err != nil {
				return fmt.Errorf("table %s: %w", t.table, err)
			}
		}
		has := func(t handedTable) bool { return slices.Contains(tasks, t.ID) }
		tables = slices.DeleteFunc(slices.Clone(tables), has)
		if using := p.using(tasks, limit); using+len(tables) > limit {
			return fmt.Errorf("%w: %d tasks and %d new tables, limit %d", errTaskLimit, using, len(tables), limit)
		}
		from := make([]string, len(tables))
		for i, t := range tables {
			var err error
			if from[i], err = askedFor(asked, t.list); err == nil {
				err = p.tryTable(from[i], t, checks.table)
			}
			if err != nil {
				return fmt.Errorf("table %s: %w", t.table, err)
			}
		}
		if err := p.storeSet(s); err != nil {
			return err
		}
		for i, t := range tables {
			folder := from[i]
			if slices.Contains(from[i+1:], folder) {
				if err := p.copyKeys(folder); err != nil {
					return fault(err)
				}
				folder = workFolder
			}
			if err := durable.WriteFile(p.file(folder, bundleFile), t.raw, 0o600); err != nil {
				return fault(err)
			}
			if err := durable.Rename(p.file(folder), p.file(t.ID.String())); err != nil {
				return fault(err)
			}
		}
		return nil
	})
}

// storeSet stores a set's bundle durably.
func (p *ownerFolder) storeSet(s *HostedSet) error {
	return fault(durable.WriteFile(p.file(setPrefix+s.ID.String()), s.raw, 0o600))
}

// droppedAll reports whether no slot of a set's tables exists: the set was dropped, or a crash came before its first
// table was stored. If the owner's folder is missing, it returns false.
func (p *ownerFolder) droppedAll(s *HostedSet) bool {
	return !slices.ContainsFunc(s.Tables, func(t tableset.Table) bool { return !p.dropped(t.Task) })
}

// removeSet removes a dropped set's file, unless the owner has handed over its tables meanwhile. root is the set at
// position 0.
func (p *ownerFolder) removeSet(s, root *HostedSet) error {
	return p.alone(func() error {
		if !p.droppedAll(root) {
			return nil
		}
		err := os.Remove(p.file(setPrefix + s.ID.String()))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process has removed it
		}
		return fault(err)
	})
}

// tryTable calls check with a copy of a table's keys, and removes the copy.
func (p *ownerFolder) tryTable(asked string, t handedTable, check func(folder string, t handedTable) error) error {
	if err := p.copyKeys(asked); err != nil {
		return fault(err)
	}
	err := check(p.file(workFolder), t)
	return errors.Join(err, fault(os.RemoveAll(p.file(workFolder))))
}

// copyKeys copies keys that wait for a task into "work".
func (p *ownerFolder) copyKeys(asked string) error {
	if err := durable.MakeFolder(p.file(workFolder), 0o700); err != nil {
		return err
	}
	for _, name := range []string{keysFile, keysFile + ".pub"} {
		if err := copyFile(p.file(workFolder, name), p.file(asked, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file durably, with mode 0600, and leaves none of it in memory.
func copyFile(to, from string) error {
	raw, err := os.ReadFile(from)
	if err == nil {
		err = durable.WriteFile(to, raw, 0o600)
	}
	clear(raw)
	return err
}

// askedFor returns the folder of the keys that wait for a task with this list.
func askedFor(asked []string, list task.KeyListHash) (name string, err error) {
	at := slices.IndexFunc(asked, func(name string) bool { return strings.HasSuffix(name, hashName(list)) })
	if at < 0 {
		return "", invalid.Field("relays.keyList", hashName(list),
			"a key list that this relay made for the owner in the last 24 hours and that no other task uses")
	}
	return asked[at], nil
}
