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
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ownerFolder is the folder of an approved owner, in which everything takes a place:
//
//	ID                         a task, with this relay's keys for it, and its successors if it begins a stream
//	asked-LABEL-KEM-N-HASH     keys that no task has yet, for N epochs; HASH is that of their list
//
// What has such a name is whole and durable: it is made in the folder "work", which is then renamed. Several processes
// of the relay share the folder.
type ownerFolder struct {
	path string
	most int
}

// The names in an owner's folder.
const (
	bundleFile       = "task.bundle"
	keysFile         = "hpke.keys"
	successorsFolder = "next"
	askedPrefix      = "asked-"
	workFolder       = "work"
	ownerFile        = "owner" // the lock's, and the reserve's
	noncesFile       = "owner.nonces"
)

// keptRequests is of how many requests of an owner the nonces are kept, for longer than the process lives.
const keptRequests = 4096

// keysKept is how long keys wait for their task.
const keysKept = 24 * time.Hour

// errOwnerFolder is returned where the folder is at fault, not what came from the owner.
var errOwnerFolder = errors.New("couldn't use an owner's folder")

// errTaskLimit is returned where all places are taken.
var errTaskLimit = errors.New("no task slot is free")

// file returns the path of something in the folder.
func (p *ownerFolder) file(names ...string) string {
	return filepath.Join(append([]string{p.path}, names...)...)
}

// taken returns the tasks, and the folders of keys that wait for one.
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

// prepare makes the folder and its lock where they are not there. That is done at the start alone: later they are gone
// only with their volume, and an empty folder with a lock would say that all tasks have been dropped.
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

// alone does something with the folder while no other request or process does.
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

// change does something with the folder alone, when what has expired by now is gone, and what a crash has left in work.
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

// fresh takes note of a request's nonce, durably, and says whether it is new, to whichever process of the relay: else
// who saw an owner's requests on the way could fill all places, after each start, with keys that nobody asks for.
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

// fault says that an error is the folder's.
func fault(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errOwnerFolder, err)
	}
	return err
}

// expired returns those of the keys that have surely waited too long: a clock that leaps removes none whose task is
// signed.
func (p *ownerFolder) expired(asked []string, now clock.Reading) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(name string) bool {
		info, err := os.Stat(p.file(name))
		return err != nil || !now.Over(info.ModTime().Add(keysKept))
	})
}

// remove removes a folder with all that is in it. A crash leaves it as it was, or in work.
func (p *ownerFolder) remove(name string) error {
	err := durable.Rename(p.file(name), p.file(workFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process was faster
	}
	return errors.Join(err, os.RemoveAll(p.file(workFolder)))
}

// clear removes the keys that have waited too long.
func (p *ownerFolder) clear(now clock.Reading) error {
	_, asked, err := p.taken()
	if err != nil || len(p.expired(asked, now)) == 0 {
		return fault(err)
	}
	return p.change(now, func([]task.ID, []string) error { return nil })
}

// keys returns the signed list of keys that an owner asks for under a label: the one that was made for that before, and
// waits for its task, or a new one in a place of its own. That takes about .1 ms an epoch.
func (p *ownerFolder) keys(label taskfile.Label, kem task.KEM, count uint64, now clock.Reading,
	sign ed25519.PrivateKey) (
	raw []byte, err error) {
	name := fmt.Sprintf("%s%x-%s-%d-", askedPrefix, label, kem, count)
	err = p.change(now, func(tasks []task.ID, asked []string) (err error) {
		same := slices.IndexFunc(asked, func(other string) bool { return strings.HasPrefix(other, name) })
		switch {
		case same >= 0:
			raw, err = os.ReadFile(p.file(asked[same], keysFile+".pub"))
		case len(tasks)+len(asked) >= p.most:
			return fmt.Errorf("%w: %d tasks and %d waiting key lists, limit %d", errTaskLimit, len(tasks),
				len(asked), p.most)
		default:
			raw, err = p.make(name, kem, count, now.Now, sign)
		}
		return fault(err)
	})
	return raw, err
}

// make makes keys, in a folder whose name begins so.
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

// take gives a task, durably, the place of the keys that it names, unless it has it. check is told the folder that is
// to be the task's, and may refuse.
func (p *ownerFolder) take(id task.ID, list task.KeyListHash, raw []byte, now clock.Reading,
	check func(folder string) error) error {
	return p.change(now, func(tasks []task.ID, asked []string) error {
		at := slices.IndexFunc(asked, func(name string) bool { return strings.HasSuffix(name, hashName(list)) })
		switch {
		case slices.Contains(tasks, id):
			return nil // handed over again
		case len(tasks) >= p.most:
			return fmt.Errorf("%w: %d tasks, limit %d", errTaskLimit, len(tasks), p.most)
		case at < 0:
			return invalid.Field("relays.keyList", hashName(list),
				"a key list that this relay made for the owner in the last 24 hours and that no other task uses")
		}
		if err := check(p.file(asked[at])); err != nil {
			return err
		}
		if err := durable.WriteFile(p.file(asked[at], bundleFile), raw, 0o600); err != nil {
			return fault(err)
		}
		return fault(durable.Rename(p.file(asked[at]), p.file(id.String())))
	})
}

// drop gives a task's place back, and removes its keys.
func (p *ownerFolder) drop(id task.ID, now clock.Reading) error {
	return p.change(now, func([]task.ID, []string) error { return fault(p.remove(id.String())) })
}

// dropped says whether another process has dropped a task. A folder that is not there at all has dropped nothing, nor
// has one without its lock: it is where the volume with the places should be.
func (p *ownerFolder) dropped(id task.ID) bool {
	_, err := os.Stat(p.file(id.String()))
	return errors.Is(err, fs.ErrNotExist) && p.away() == nil
}

// away returns an error where the folder is not there, or is without its lock.
func (p *ownerFolder) away() error {
	_, err := os.Stat(p.file(ownerFile + ".lock"))
	return err
}

func hashName(list task.KeyListHash) string { return hex.EncodeToString(list[:]) }
