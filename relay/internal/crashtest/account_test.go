package crashtest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/keytree"
	vault "github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func batchFile(epoch, seq uint64) string { return fmt.Sprintf("%06d-%06d.batch", epoch, seq) }

// slot identifies a message at the verifier, by the hash of the ciphertext that only the verifier can open. No relay
// changes it.
type slot = [sha256.Size]byte

// owner is the report and the lane from which a message came.
type owner struct{ report, lane int }

// peel opens all layers of every report as the relays would. It returns each message's report, and each report's number
// of slots.
func (w *world) peel(t *testing.T, all []sent) (owners map[slot]owner, slots []int) {
	t.Helper()
	owners, slots = map[slot]owner{}, make([]int, len(all))
	var mu sync.Mutex
	var workers sync.WaitGroup
	parts := runtime.GOMAXPROCS(0)
	failed := make(chan error, parts)
	for part := range parts {
		workers.Go(func() {
			for i := part; i < len(all); i += parts {
				found, err := w.peelOne(&all[i])
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				for hash, lane := range found {
					owners[hash] = owner{i, lane}
				}
				mu.Unlock()
				slots[i] = len(found)
			}
		})
	}
	workers.Wait()
	close(failed)
	require.NoError(t, <-failed)
	total := 0
	for _, n := range slots {
		total += n
	}
	require.Len(t, owners, total, "no two slots are equal")
	return owners, slots
}

func (w *world) peelOne(s *sent) (map[slot]int, error) {
	openers := w.openers[s.task]
	envelope, err := openers[0][s.epoch].OpenEnvelope(s.body)
	if err != nil {
		return nil, err
	}
	found := map[slot]int{}
	for lane, slots := range envelope.Lanes {
		for _, in := range slots {
			for hop := 1; hop < len(openers); hop++ {
				if _, in, err = openers[hop][s.epoch].OpenSlot(lane, in); err != nil {
					return nil, err
				}
			}
			found[sha256.Sum256(in)] = lane
		}
	}
	return found, nil
}

// tally counts what became of the reports of one epoch of a task.
type tally struct {
	batches, withheld, slots uint64 // released batches; submissions in destroyed batches; released slots
	users                    uint64 // submissions in released batches
	short                    bool   // the last batch, with dummies, had fewer than n submissions
}

// figures are the counts that a run prints and writes to a file.
type figures struct {
	Store        string         `json:"store"`
	Hops         int            `json:"hops"`
	Kills        int            `json:"kills"`
	ByVictim     map[string]int `json:"by_victim"`
	ByPhase      map[phase]int  `json:"by_phase"`
	Idle         int            `json:"in_no_phase"`
	Epochs       uint64         `json:"epochs"`
	Reports      int            `json:"reports"`
	Acknowledged int            `json:"acknowledged"`
	Unanswered   int64          `json:"attempts_without_answer"`
	Delivered    int            `json:"delivered"`
	Withheld     int            `json:"withheld"`
	Messages     int            `json:"messages"`
	Dummies      int            `json:"dummies"`
	Batches      int            `json:"batches"`
	Repeats      int            `json:"batches_pulled_again"`
	Lost         int            `json:"lost"`
	Twice        int            `json:"twice"`
	BelowMin     int            `json:"below_n_min"`
	Seconds      float64        `json:"seconds"`
}

// account compares the verifiers' batches with the acknowledged reports, message by message.
func (w *world) account(t *testing.T, all []sent, last uint64, f *figures) {
	t.Helper()
	owners, slots := w.peel(t, all)
	in := make([]map[batchKey]int, len(all)) // by report: the batches with its messages, and how many
	tallies, dummies := map[epochKey]*tally{}, map[slot]bool{}
	for index := range w.Bundles {
		w.readBatches(t, index, last, func(at batchKey, batch *onion.Batch, chain []onion.Manifest) {
			e := epochKey{at.task, at.epoch}
			if tallies[e] == nil {
				tallies[e] = &tally{}
			}
			f.Batches++
			w.takeBatch(t, at, batch, chain, tallies[e], f)
			added := addedTo(chain)
			f.Dummies += int(added)
			for lane, ciphertexts := range batch.Ciphertexts {
				for _, c := range ciphertexts {
					hash := sha256.Sum256(c)
					own, known := owners[hash]
					if !known && added > 0 && !dummies[hash] {
						dummies[hash] = true
						added--
						continue
					}
					require.True(t, known, "no client sent this message, and no relay claims it as a dummy, in %v", at)
					require.Equal(t, lane, own.lane)
					r := &all[own.report]
					require.Equal(t, e, epochKey{w.Bundles[r.task].ID, r.epoch},
						"a message of another epoch or task")
					if in[own.report] == nil {
						in[own.report] = map[batchKey]int{}
					}
					in[own.report][at]++
				}
			}
			require.Zero(t, added, "relays claim more dummies than came, in %v", at)
		})
	}
	missing := map[epochKey]*[kinds]uint64{}
	for i := range all {
		w.checkReport(t, &all[i], in[i], slots[i], missing, f)
	}
	for e, lost := range missing {
		withheld := uint64(0)
		if tallies[e] != nil {
			withheld = tallies[e].withheld
		}
		if lost[acknowledged] > withheld {
			f.Lost += int(lost[acknowledged] - withheld)
		}
		require.GreaterOrEqual(t, withheld, lost[acknowledged],
			"epoch %d: acknowledged reports that are neither delivered nor withheld", e.epoch)
		require.LessOrEqual(t, withheld, lost[acknowledged]+lost[unknown], "epoch %d: more withheld than sent", e.epoch)
	}
	require.Zero(t, f.Twice)
	require.Zero(t, f.BelowMin)
	w.checkVerifiers(t, tallies)
}

// checkReport compares what a client knows of its report with the verifiers' batches.
func (w *world) checkReport(t *testing.T, r *sent, in map[batchKey]int, slots int, missing map[epochKey]*[kinds]uint64,
	f *figures) {
	t.Helper()
	e := epochKey{w.Bundles[r.task].ID, r.epoch}
	if missing[e] == nil {
		missing[e] = &[kinds]uint64{}
	}
	f.Reports++
	if r.fate == acknowledged {
		f.Acknowledged++
	}
	if len(in) == 0 {
		missing[e][r.fate]++
		return
	}
	require.NotEqual(t, refused, r.fate, "a report was delivered that the relay had refused")
	if len(in) > 1 {
		f.Twice++
	}
	for at, n := range in {
		if n > slots {
			f.Twice++
		}
		require.Equal(t, slots, n, "messages of one report in %v", at)
		f.Messages += n
	}
	f.Delivered++
}

// readBatches calls do with every batch file of a verifier. It requires that an epoch's numbers have no gap, and that
// each batch has a valid chain of manifests.
func (w *world) readBatches(t *testing.T, index int, last uint64, do func(batchKey, *onion.Batch, []onion.Manifest)) {
	t.Helper()
	open := w.Bundles[index]
	for epoch := range last + 1 {
		count := w.made(t, index, epoch)
		for seq := range count {
			raw, err := os.ReadFile(filepath.Join(w.batches(index), batchFile(epoch, seq)))
			require.NoError(t, err, "a batch is missing")
			batch, err := onion.ParseBatch(raw)
			require.NoError(t, err)
			chain, err := verifier.Check(open, batch)
			require.NoError(t, err)
			at := batchKey{open.ID, epoch, seq}
			require.Equal(t, at, batchKey{task.ID(chain[0].TaskID), chain[0].Epoch, chain[0].Seq})
			w.checkSeen(t, at, batch, raw)
			do(at, batch, chain)
		}
		require.NoFileExists(t, filepath.Join(w.batches(index), batchFile(epoch, count)))
	}
}

// made returns how many batches an epoch had. All relays must agree.
func (w *world) made(t *testing.T, index int, epoch uint64) uint64 {
	t.Helper()
	counts := map[uint64]bool{}
	var out uint64
	for _, p := range w.relays {
		status := statusOf(t, p)
		require.Empty(t, status.Tasks[index].Findings, p.name)
		out = 0
		for _, e := range status.Tasks[index].Epochs {
			if e.Epoch != epoch {
				continue
			}
			require.Equal(t, "erased", e.State, p.name)
			require.Equal(t, e.Batches, e.Confirmed, p.name)
			out = e.Batches
		}
		counts[out] = true
	}
	require.Len(t, counts, 1, "relays disagree on how many batches epoch %d had: %v", epoch, counts)
	return out
}

// checkSeen compares a batch and its chain of manifests with the bytes that the proxies saw under its number.
func (w *world) checkSeen(t *testing.T, at batchKey, batch *onion.Batch, raw []byte) {
	t.Helper()
	for _, r := range w.proxies {
		require.Empty(t, r.faults)
	}
	require.Equal(t, w.proxies[len(w.proxies)-1].batches[at], sha256.Sum256(raw))
	manifest := batch.Manifest
	for hop := len(w.proxies) - 1; ; hop-- {
		require.Equal(t, w.proxies[hop].manifests[at], manifest, "hop %d", hop)
		var m onion.Manifest
		require.NoError(t, codec.Unmarshal(manifest, &m))
		if hop == 0 {
			return
		}
		var source onion.SignedManifest
		require.NoError(t, codec.Unmarshal(m.Source, &source))
		manifest = source.Manifest
	}
}

// addedTo returns how many dummies a batch's relays claim to have added.
func addedTo(chain []onion.Manifest) (added uint64) {
	for _, m := range chain {
		for _, lane := range m.Lanes {
			added += lane.Added
		}
	}
	return added
}

// takeBatch requires that a batch has exactly n submissions, or was destroyed with fewer. If relays add dummies, no
// batch may be destroyed, and only an epoch's last may have fewer.
func (w *world) takeBatch(
	t *testing.T, at batchKey, batch *onion.Batch, chain []onion.Manifest, to *tally, f *figures,
) {
	t.Helper()
	_, open := w.taskOf(at.task)
	final := chain[len(chain)-1]
	if final.Destroyed() {
		require.Less(t, chain[0].Submissions, open.Batch.Size, "only an epoch's last batch may be destroyed")
		require.True(t, chain[0].Destroyed())
		require.Nil(t, open.Noise, "with relays' dummies the last batch must be released")
		to.withheld += chain[0].Submissions
		f.Withheld += int(chain[0].Submissions)
		return
	}
	require.Zero(t, to.withheld, "a batch after the last one of its epoch")
	require.False(t, to.short, "a batch after the last one of its epoch")
	if open.Noise != nil {
		takeWithDummies(t, open, chain, to)
		return
	}
	released := uint64(0)
	for lane, slots := range batch.Ciphertexts {
		least := open.Batch.Min
		if open.Slots.Padding == task.PaddingFull {
			least *= open.Slots.PerLane
		}
		if uint64(len(slots)) < least {
			f.BelowMin++
		}
		for _, m := range chain {
			require.Equal(t, open.Batch.Size, m.Submissions)
			require.EqualValues(t, onion.LaneCount{In: uint64(len(slots)), Out: uint64(len(slots))}, m.Lanes[lane],
				"honest relays must not drop slots")
		}
		released += uint64(len(slots))
	}
	to.batches++
	to.users += open.Batch.Size
	to.slots += released
}

// takeWithDummies is takeBatch for a batch with relays' dummies. Each relay must have added a number that the task's
// law allows.
func takeWithDummies(t *testing.T, open *taskfile.Open, chain []onion.Manifest, to *tally) {
	t.Helper()
	least, most := open.Noise.Support()
	in := chain[0].Submissions
	to.short = in < open.Batch.Size
	require.LessOrEqual(t, in, open.Batch.Size)
	require.NotZero(t, in)
	to.batches++
	to.users += in
	for _, m := range chain {
		require.Equal(t, chain[0].Submissions, m.Submissions)
		added := m.Lanes[0].Added
		require.GreaterOrEqual(t, added, least)
		require.LessOrEqual(t, added, most)
		require.Equal(t, onion.LaneCount{In: in, Added: added, Out: in + added}, m.Lanes[0],
			"honest relays must not drop slots")
		in += added
	}
	to.slots += in
}

// checkVerifiers compares the verifiers' own counts with the tallies.
func (w *world) checkVerifiers(t *testing.T, tallies map[epochKey]*tally) {
	t.Helper()
	for index, open := range w.Bundles {
		var want tally
		for e, one := range tallies {
			if e.task == open.ID {
				want.batches += one.batches
				want.slots += one.slots
				want.users += one.users
			}
		}
		var r struct {
			Users, Batches, Verified, Rejected uint64
			Covers                             uint64 `json:"cover_messages"`
			Findings                           []finding.Finding
		}
		fetch(t, w.reportURL(index), &r)
		require.Equal(t, want.batches, r.Batches)
		require.Equal(t, want.users, r.Users)
		require.Equal(t, want.slots, r.Verified+r.Covers)
		require.Zero(t, r.Rejected)
		for _, f := range r.Findings {
			require.Equal(t, finding.Destroyed, f.Name)
		}
	}
}

func fetch(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, url)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(into))
}

func statusOf(t *testing.T, p *process) (status relay.Status) {
	t.Helper()
	fetch(t, "http://"+p.admin+"/status", &status)
	return status
}

// private returns the private keys in the relays' key files, by file and epoch.
func (w *world) private(t *testing.T) (out map[string][][]byte) {
	t.Helper()
	out = map[string][][]byte{}
	for _, p := range w.relays {
		for _, q := range queries {
			path := filepath.Join(w.folder(p.hop), q.Name+".keys")
			if out[path] != nil {
				continue // two processes share the file
			}
			in, err := os.ReadFile(path)
			require.NoError(t, err)
			var file struct {
				Keys []struct {
					Epoch   uint64
					Private string
				}
			}
			require.NoError(t, json.Unmarshal(in, &file))
			require.Len(t, file.Keys, epochCount)
			for _, key := range file.Keys {
				require.EqualValues(t, len(out[path]), key.Epoch)
				out[path] = append(out[path], []byte(key.Private))
			}
		}
	}
	return out
}

// checkErased requires that no file of a relay, and no row of its store, keeps anything of the epochs up to last,
// however often the relay was killed: no key that opens their slots or decrypts their deleted rows, no replay set, and
// nothing about clients.
func (w *world) checkErased(t *testing.T, keys map[string][][]byte, last uint64) {
	t.Helper()
	for path, private := range keys {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		require.NoError(t, err)
		require.Contains(t, files, path)
		for _, name := range files {
			content, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(name, ".new") {
				continue // a process was writing it
			}
			require.NoError(t, err)
			for epoch, key := range private {
				if uint64(epoch) <= last {
					require.False(t, bytes.Contains(content, key), "%s still holds the key of epoch %d of %s", name,
						epoch, path)
				} else if now, _ := w.epochAt(time.Now()); name == path && uint64(epoch) > now {
					require.True(t, bytes.Contains(content, key), "the key of epoch %d is gone before its time", epoch)
				}
			}
		}
	}
	for hop := range w.proxies {
		files, err := filepath.Glob(filepath.Join(w.folder(hop), "relay.secret*"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			if !strings.HasSuffix(name, ".lock") && !strings.HasSuffix(name, ".reserve") && !strings.HasSuffix(name, ".room") &&
				!strings.Contains(name, ".secret.clock") { // files without keys
				w.checkSecret(t, name, last)
			}
		}
	}
	for _, r := range w.proxies {
		for _, table := range []string{"seen", "runs", "open", "batches WHERE bytes IS NOT NULL",
			"batches WHERE confirmed = 0"} {
			require.Zero(t, r.store.rows(t, table), "hop %d: %s", r.hop, table)
		}
	}
}

// checkSecret requires that a secret file, or what a crash left of one, has no key of the epochs up to last: neither
// for hashing names nor for open or sealed batches. A relay erases such a key when its store reports a batch as
// confirmed or an epoch as erased, or at the next scan of the store, at most one second later.
func (w *world) checkSecret(t *testing.T, name string, last uint64) {
	t.Helper()
	var file *keytree.File
	gone, begun := false, time.Now()
	require.Eventually(t, func() bool { // a process may be replacing the file, or may still have keys to erase
		var err error
		file, err = keytree.Open(name)
		gone = strings.HasSuffix(name, ".new") && errors.Is(err, fs.ErrNotExist)
		return gone || err == nil && w.isCut(file, last)
	}, relaytest.Patience, 10*time.Millisecond, "%s still holds keys", name)
	t.Logf("%s: all keys are gone %v after relays report it", filepath.Base(filepath.Dir(name)), time.Since(begun))
	if gone {
		return
	}
	now, _ := w.epochAt(time.Now())
	for epoch := now + 1; epoch < epochCount; epoch++ {
		for _, err := range w.keyErrors(file, epoch) {
			require.NoError(t, err, "%s: the keys of epoch %d are gone before their time", name, epoch)
		}
	}
}

// isCut reports whether a secret file has none of the keys of the epochs up to last.
func (w *world) isCut(file *keytree.File, last uint64) bool {
	for epoch := range last + 1 {
		for _, err := range w.keyErrors(file, epoch) {
			if !errors.Is(err, keytree.ErrCut) {
				return false
			}
		}
	}
	return true
}

// keyErrors returns the error for each of an epoch's keys when it is read; nil if the key is there.
func (w *world) keyErrors(file *keytree.File, epoch uint64) (out []error) {
	for _, open := range w.Bundles {
		for _, kind := range []keytree.Label{"00", "01", "10"} { // as in relay/internal/store/vault.go
			_, err := file.Key(vault.EpochID{Task: open.ID, Epoch: epoch}.Label()+kind, "")
			out = append(out, err)
		}
	}
	return out
}

// unfinished says what is still missing; "" when every relay has erased the epochs up to last, their batches are
// confirmed, and the verifiers answer.
func (w *world) unfinished(last uint64) string {
	for _, p := range w.relays {
		resp, err := http.Get("http://" + p.admin + "/status")
		if err != nil {
			return p.name + " does not answer"
		}
		var status relay.Status
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil {
			return p.name + " does not answer"
		}
		for _, task := range status.Tasks {
			for _, e := range task.Epochs {
				if e.Epoch <= last && (e.State != "erased" || e.Confirmed < e.Batches) {
					return fmt.Sprintf("%s: task %s, epoch %d: %s, %d of %d batches confirmed", p.name, task.ID[:8],
						e.Epoch, e.State, e.Confirmed, e.Batches)
				}
			}
		}
	}
	for i, v := range w.verifiers {
		resp, err := http.Get(w.reportURL(i))
		if err != nil {
			return v.name + " does not answer"
		}
		resp.Body.Close()
	}
	return ""
}

// finishAll waits until all epochs up to last are finished. It restarts processes that are not running.
func (w *world) finishAll(t *testing.T, last uint64) {
	t.Helper()
	waits := "?"
	for deadline := time.Now().Add(w.plan.patience); waits != ""; time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "after %v without crashes: %s%s", w.plan.patience, waits, w.logs())
		for _, p := range w.all() {
			if p.cmd == nil {
				require.NoError(t, p.start())
			}
			require.NoError(t, p.excused(p.check()), "%s", w.logs())
		}
		waits = w.unfinished(last)
	}
}

// logs returns the last 1500 bytes of each log.
func (w *world) logs() string {
	var out strings.Builder
	for _, p := range w.all() {
		in, _ := os.ReadFile(p.log)
		fmt.Fprintf(&out, "\n== %s\n%s", p.name, in[max(0, len(in)-1500):])
	}
	if w.server != nil {
		fmt.Fprintf(&out, "\n== postgres\n")
		w.server.Log(io.Writer(&out))
	}
	return out.String()
}
