package main

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// analyzing measures how fast a verifier analyzes a batch file: messages per second of CPU time, from the file to the
// answer. The limit only opens the messages, with circl. The peer only opens them, with the standard library's HPKE.
// All three use all cores. verifier/memory is the peak memory of `verifier analyze` for one batch of 10⁶ messages.
// growth/users is the slope of its CPU time from 10⁵ to 10⁶ messages, in logarithms: 1 is linear growth.
var analyzing = Group{
	Names: []string{"verifier/analyze", "verifier/memory", "growth/users"},
	Run:   measureAnalysis,
}

// Numbers of messages per batch, and the number of runs of verifier/analyze.
const (
	analyzedMessages = 100_000
	analyzedRuns     = 7
	memoryMessages   = 1_000_000
)

func measureAnalysis(ctx context.Context, s *Setup) (rows []Row, err error) {
	dir, err := s.Folder("analyze")
	if err != nil {
		return nil, err
	}
	w, err := newWarehouse(filepath.Join(dir, "batches"), analyzedMessages)
	if err != nil {
		return nil, err
	}
	if s.wanted("verifier/analyze") {
		row, err := w.rate()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if !s.wanted("verifier/memory") && !s.wanted("growth/users") {
		return rows, nil
	}
	if _, err := command(ctx, "go", "build", "-o", dir+"/", "./cmd/verifier"); err != nil {
		return nil, err
	}
	many, err := newWarehouse(filepath.Join(dir, "large"), memoryMessages)
	if err != nil {
		return nil, err
	}
	grown, err := grow(ctx, filepath.Join(dir, "verifier"), w, many)
	return append(rows, grown...), err
}

// warehouse seals slots and writes batch files for a task with one relay: a histogram of 64 labels.
type warehouse struct {
	d     *quickstart.Deployment
	keys  *keyfile.HPKE
	bare  *minimal
	key   *onion.PrivateKey
	press *press
	tags  *rand.ChaCha8
}

// newWarehouse makes a warehouse in dir. Its task has a batch size of that number of clients.
func newWarehouse(dir string, clients int) (*warehouse, error) {
	draft, err := planner.Draft(planner.Query{Name: "stock", Query: task.Histogram, Bins: 64, Labels: true,
		Batch: uint64(clients), Honest: 0.9, Epsilon: 1, Delta: 1e-6})
	if err != nil {
		return nil, err
	}
	draft.Epochs = task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1}
	w := &warehouse{tags: rand.NewChaCha8([32]byte{1})}
	w.d, err = quickstart.Write(dir, []quickstart.Relay{{URL: "http://127.0.0.1:1", Listen: "127.0.0.1:1",
		Admin: "127.0.0.1:2"}}, []quickstart.Draft{{Name: "stock", Task: draft}})
	if err != nil {
		return nil, err
	}
	if w.keys, err = keyfile.LoadHPKE(w.d.VerifierKeys("stock")); err != nil {
		return nil, err
	}
	if w.key, err = w.keys.Key(0); err != nil {
		return nil, err
	}
	open := w.d.Bundles[0]
	if w.bare, err = newMinimal(w.key, open.KeyLists[1].Keys[:32], open.ID, 1, 0); err != nil {
		return nil, err
	}
	w.press, err = w.bare.press()
	return w, err
}

func (w *warehouse) path(name string) string { return filepath.Join(w.d.Dir, name) }

// slot returns a slot with a random label and a fresh tag, sealed for the verifier.
func (w *warehouse) slot() []byte {
	plain := make([]byte, onion.TagSize+1+w.d.Bundles[0].Slots.MessageBytes)
	w.tags.Read(plain[:onion.TagSize])
	plain[onion.TagSize] = 1
	plain[len(plain)-1] = byte(w.tags.Uint64() % 64)
	return w.press.seal(nil, plain)
}

// planted says which slots a batch repeats: slots of an earlier batch, and the first len(own) slots of the batch
// itself. batch fills own.
type planted struct{ earlier, own [][]byte }

// batch writes a batch file of that number of messages. The repeated slots are the last ones. It returns the batch's
// first slots, as many as keep says.
func (w *warehouse) batch(name string, seq uint64, messages int, again planted, keep int) (kept [][]byte, err error) {
	sign, err := keyfile.LoadSign(filepath.Join(w.d.Dir, "relay1", "sign.key"))
	if err != nil {
		return nil, err
	}
	body, err := os.Create(w.path(name + ".body"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(body.Name())
	defer body.Close()
	to := onion.NewBatchWriter(1, func(chunk []byte) error {
		_, err := body.Write(chunk)
		return err
	})
	repeated := append(again.earlier, again.own...)
	for i := range messages {
		slot := w.slot()
		if from := messages - len(repeated); i >= from {
			slot = repeated[i-from]
		}
		if i < keep {
			kept = append(kept, slot)
		}
		if i < len(again.own) {
			repeated[len(again.earlier)+i] = slot
		}
		if err := to.Add(0, slot); err != nil {
			return nil, err
		}
	}
	n := []uint64{uint64(messages)}
	_, head, err := to.Finish(sign, onion.BatchDraft{
		Context: onion.Context{TaskID: w.d.Bundles[0].ID},
		Seq:     seq, Submissions: n[0], In: n, Added: []uint64{0},
	})
	if err != nil {
		return nil, err
	}
	return kept, joinFiles(w.path(name), head, body)
}

func joinFiles(path string, head []byte, body *os.File) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = out.Write(head)
	if err == nil {
		_, err = body.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(out, body)
	}
	return errors.Join(err, out.Close())
}

// rate measures the row verifier/analyze. Verifier, limit and peer alternate.
func (w *warehouse) rate() (Row, error) {
	progress("sealing %d messages", analyzedMessages)
	if _, err := w.batch("one.batch", 0, analyzedMessages, planted{}, 0); err != nil {
		return Row{}, err
	}
	sealed := make([][]byte, analyzedMessages)
	for i := range sealed {
		sealed[i] = w.slot()
	}
	var runs [3][]float64
	for run := range analyzedRuns {
		progress("verifier/analyze %d of %d", run+1, analyzedRuns)
		for i, one := range []func([][]byte) error{w.analyzeHere, w.openBare, w.openPlain} {
			runtime.GC()
			before, err := ownCPU()
			if err == nil {
				err = one(sealed)
			}
			if err != nil {
				return Row{}, err
			}
			after, err := ownCPU()
			if err != nil {
				return Row{}, err
			}
			runs[i] = append(runs[i], analyzedMessages/(after-before).Seconds())
		}
	}
	return newRow("verifier/analyze", "messages/cpu-s", higher, runs[0]...).
		against("crypto/hpke's opening alone", runs[2]...).
		within("circl's x25519, HKDF and AES alone", median(runs[1])), nil
}

// ownCPU returns the CPU time that this process has used so far, user and system.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

// analyzeHere runs the verifier in this process: it reads the batch file and computes the answer.
func (w *warehouse) analyzeHere([][]byte) error {
	v, err := verifier.New(w.d.Bundles[0], w.keys)
	if err != nil {
		return err
	}
	f, err := os.Open(w.path("one.batch"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := v.AddFile("one", f); err != nil {
		return err
	}
	r, err := v.Report()
	if err == nil && r.Verified != analyzedMessages {
		err = fmt.Errorf("one.batch: verified %d messages, want %d: findings %v", r.Verified, analyzedMessages,
			r.Findings)
	}
	return err
}

func (w *warehouse) openBare(sealed [][]byte) error {
	return inParallel(runtime.NumCPU(), len(sealed)/1000, func(i int) error {
		var room [256]byte
		for _, s := range sealed[1000*i : 1000*i+1000] {
			if err := w.bare.open(room[:], s); err != nil {
				return err
			}
		}
		return nil
	})
}

// openAndSeal returns the CPU time to open the outer layer of a slot and to encrypt its content of size bytes for the
// disk, in microseconds, with all cores busy.
func (w *warehouse) openAndSeal(size int) (float64, error) {
	plain := make([]byte, onion.TagSize+size)
	sealed := w.press.seal(nil, plain)
	return perTurn(20_000, func() func() error {
		room, stored := make([]byte, 0, len(sealed)), make([]byte, 0, 2*len(plain)+256)
		return func() error {
			w.press.seal(stored, plain[onion.TagSize:])
			return w.bare.open(room, sealed)
		}
	})
}

// perTurn returns the CPU time per operation in µs, with all cores busy. Relays and verifiers use all cores, too. Two
// cores of a virtual machine are often two threads of one core, and each is slower while both work.
func perTurn(times int, worker func() func() error) (float64, error) {
	before, err := ownCPU()
	if err != nil {
		return 0, err
	}
	cores := runtime.NumCPU()
	err = inParallel(cores, cores, func(int) error {
		do := worker()
		for range times {
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	})
	after, failed := ownCPU()
	return float64((after - before).Microseconds()) / float64(cores*times), errors.Join(err, failed)
}

func (w *warehouse) openPlain(sealed [][]byte) error {
	raw, err := w.key.Bytes()
	if err != nil {
		return err
	}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(raw)
	if err != nil {
		return err
	}
	keyID := w.key.Public().ID()
	info := append([]byte("doona-v1 onion"), w.d.Bundles[0].ID[:]...)
	info = append(append(binary.BigEndian.AppendUint64(info, 0), 1), keyID[:]...)
	return inParallel(runtime.NumCPU(), len(sealed)/1000, func(i int) error {
		for _, s := range sealed[1000*i : 1000*i+1000] {
			r, err := hpke.NewRecipient(s[:32], key, hpke.HKDFSHA256(), hpke.AES128GCM(), info)
			if err != nil {
				return err
			}
			if _, err := r.Open(slotAAD, s[32:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// grow measures the rows verifier/memory and growth/users: `verifier analyze` of a batch of 10⁵ messages of one task,
// and of a batch of 10⁶ messages of another.
func grow(ctx context.Context, program string, few, many *warehouse) ([]Row, error) {
	const name = "whole.batch"
	for messages, w := range map[int]*warehouse{analyzedMessages: few, memoryMessages: many} {
		progress("sealing %d messages", messages)
		if _, err := w.batch(name, 0, messages, planted{}, 0); err != nil {
			return nil, err
		}
	}
	var peaks, slopes []float64
	for range 3 {
		small, err := few.analyze(ctx, program, name)
		if err != nil {
			return nil, err
		}
		large, err := many.analyze(ctx, program, name)
		if err != nil {
			return nil, err
		}
		peaks = append(peaks, float64(large.peak)/1e6)
		slopes = append(slopes, slope(small, large))
	}
	return []Row{newRow("verifier/memory", "MB", lower, peaks...),
		newRow("growth/users", "slope", lower, slopes...)}, nil
}

// slope returns the exponent by which CPU time grows with the number of messages: 1 is linear growth.
func slope(small, large *analysis) float64 {
	return math.Log(large.cpu.Seconds()/small.cpu.Seconds()) /
		math.Log(float64(large.Verified)/float64(small.Verified))
}

// analysis is the JSON output of a run of `verifier analyze`, with the CPU time and peak memory of its process.
type analysis struct {
	Verified uint64 `json:"verified"`
	Findings []struct {
		Name  string `json:"name"`
		Count uint64 `json:"count"`
	} `json:"findings"`

	cpu  time.Duration
	peak int64 // bytes
}

// analyze runs `verifier analyze` on batch files.
func (w *warehouse) analyze(ctx context.Context, program string, batches ...string) (*analysis, error) {
	args := []string{"analyze", "--task", w.path("stock.bundle"), "--keys", w.d.VerifierKeys("stock"),
		"--json"}
	for _, b := range batches {
		args = append(args, w.path(b))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	a := new(analysis)
	if json.Unmarshal(lines[len(lines)-1], a) != nil { // err alone is no failure: findings also give exit status 1
		return nil, fmt.Errorf("couldn't analyze: %w\n%s", err, &problems)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	a.cpu, a.peak = cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), usage.Maxrss<<10
	return a, nil
}
