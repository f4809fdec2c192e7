package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/taskfile"
)

func init() {
	register.DoFn4x1[context.Context, string, func([]byte, []byte), func([]byte, []byte), error](&openFile{})
	register.Function3x0(findShared)
	register.DoFn4x1[[]byte, func(*[]byte) bool, func(*[]byte) bool, func([]byte), error](&dedupBatch{})
	register.DoFn3x1[context.Context, int, func(*[]byte) bool, error](&writeState{})
	register.Emitter1[[]byte]()
	register.Emitter2[[]byte, []byte]()
	register.Iter1[[]byte]()
}

// analyze lays out the pipeline:
//
//	paths ─ open ─┬─ (batch, state) ────────────────────────────┬─ dedup ── states ─ write
//	              └─ (tag, batch) ─ find shared ─ (batch, tag) ─┘
//
// A state is a verifier's knowledge of some files (docs/SPEC.md, section 14). Every step is a function of its inputs,
// so a runner may repeat it.
func analyze(s beam.Scope, bundle []byte, keys, out string, paths []string) error {
	if _, err := newVerifier(bundle, nil); err != nil {
		return err
	}
	id := make([]byte, len(verifier.DedupID{})) // of this run
	rand.Read(id)
	states, tags := beam.ParDo2(s, &openFile{Bundle: bundle, Keys: keys}, beam.CreateList(s, paths))
	shared := beam.ParDo(s, findShared, beam.GroupByKey(s, tags))
	deduped := beam.ParDo(s, &dedupBatch{Bundle: bundle, ID: id}, beam.CoGroupByKey(s, states, shared))
	beam.ParDo0(s, &writeState{Bundle: bundle, Out: out}, beam.GroupByKey(s, beam.AddFixedKey(s, deduped)))
	return nil
}

func newVerifier(bundle []byte, keys *keyfile.HPKE) (*verifier.Verifier, error) {
	open, err := taskfile.ParseOpen(bundle)
	if err != nil {
		return nil, err
	}
	return verifier.New(open, keys)
}

// stateOf returns the encoded state of a verifier.
func stateOf(v *verifier.Verifier) ([]byte, error) {
	var out bytes.Buffer
	err := v.WriteState(&out)
	return out.Bytes(), err
}

// addStates adds encoded states to a verifier.
func addStates(v *verifier.Verifier, states func(*[]byte) bool) error {
	for state := []byte(nil); states(&state); {
		if err := v.ReadState(bytes.NewReader(state)); err != nil {
			return err
		}
	}
	return nil
}

// openFile opens a file with the verifier's keys, which it reads on the worker.
type openFile struct {
	Bundle []byte
	Keys   string

	v *verifier.Verifier
}

// Setup reads the keys. It first closes their file to its group, to which Kubernetes opens all files of a volume.
func (f *openFile) Setup() error {
	if err := durable.CloseToGroup(slog.Default(), []string{f.Keys}, nil); err != nil {
		return err
	}
	keys, err := keyfile.LoadHPKE(f.Keys)
	if err != nil {
		return err
	}
	f.v, err = newVerifier(f.Bundle, keys)
	return err
}

// ProcessElement emits the state of a file, keyed by its batch, and the batch, keyed by the tag of each of its slots.
func (f *openFile) ProcessElement(ctx context.Context, path string, state, tag func([]byte, []byte)) error {
	in, err := openPath(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	v, batch := f.v.Fresh(), []byte(path)
	defer v.Close()
	if err := errors.Join(v.AddFile(path, in), unread(v)); err != nil {
		return fmt.Errorf("couldn't open a file: %w", err)
	}
	err = v.Tags(func(epoch, seq, half uint64) error {
		batch = pair(epoch, seq)
		tag(pair(epoch, half), batch)
		return nil
	})
	raw, failed := stateOf(v)
	if err = errors.Join(err, failed); err == nil {
		state(batch, raw)
	}
	return err
}

// unread returns an error if a verifier could not read a file. A verifier only records it as a finding, but a runner
// can retry the file.
func unread(v *verifier.Verifier) error {
	for _, f := range v.Findings() {
		if f.Name == finding.Unread {
			return errors.New(f.Example)
		}
	}
	return nil
}

// pair returns a Beam key made of two numbers.
func pair(a, b uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, a), b)
}

func openPath(ctx context.Context, path string) (io.ReadCloser, error) {
	disk, err := filesystem.New(ctx, path)
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	return disk.OpenRead(ctx, path)
}

// findShared emits each tag that several batches have, once for each of these batches.
func findShared(tag []byte, batches func(*[]byte) bool, emit func([]byte, []byte)) {
	var all []string
	for batch := []byte(nil); batches(&batch); {
		if at, known := slices.BinarySearch(all, string(batch)); !known {
			all = slices.Insert(all, at, string(batch))
		}
	}
	if len(all) < 2 {
		return
	}
	for _, batch := range all {
		emit([]byte(batch), tag)
	}
}

// dedupBatch combines the states of a batch's files, and applies what findShared found for the batch.
type dedupBatch struct {
	Bundle, ID []byte

	v *verifier.Verifier
}

// Setup derives the task's claim again, which may take a second.
func (f *dedupBatch) Setup() (err error) {
	f.v, err = newVerifier(f.Bundle, nil)
	return err
}

// ProcessElement emits the deduplicated state of all files of a batch.
func (f *dedupBatch) ProcessElement(_ []byte, states, shared func(*[]byte) bool, emit func([]byte)) error {
	v, tags := f.v.Fresh(), map[[16]byte]bool{}
	defer v.Close()
	for tag := []byte(nil); shared(&tag); {
		tags[[16]byte(tag)] = true
	}
	if err := addStates(v, states); err != nil {
		return err
	}
	err := v.Dedup(verifier.DedupID(f.ID),
		func(epoch, tag uint64) bool { return tags[[16]byte(pair(epoch, tag))] })
	if err != nil {
		return err
	}
	state, err := stateOf(v)
	if err == nil {
		emit(state)
	}
	return err
}

// writeState merges all states into one file.
type writeState struct {
	Bundle []byte
	Out    string
}

// ProcessElement writes the state of all files. The file appears whole or not at all.
func (f *writeState) ProcessElement(ctx context.Context, _ int, states func(*[]byte) bool) (err error) {
	v, err := newVerifier(f.Bundle, nil)
	if err != nil {
		return err
	}
	if err := addStates(v, states); err != nil {
		return err
	}
	out, err := create(ctx, f.Out)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := v.WriteState(out); err != nil {
		return err
	}
	return out.Commit()
}

// file appears under its name when Commit is called.
type file interface {
	io.Writer
	Commit() error
	Abort()
}

// create begins a file: a local file or an object of a store. Only the owner may read the local file, since a state
// contains messages.
func create(ctx context.Context, path string) (file, error) {
	if !strings.Contains(path, "://") {
		return durable.Create(path, 0o600)
	}
	disk, err := filesystem.New(ctx, path)
	if err != nil {
		return nil, err
	}
	out, err := disk.OpenWrite(ctx, path)
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return &object{out, disk}, nil
}

// object is a file of an object store. Closing it makes it visible, and replaces an object of the same name.
type object struct {
	io.WriteCloser
	disk filesystem.Interface
}

// Commit closes the object.
func (o *object) Commit() error { return errors.Join(o.Close(), o.disk.Close()) }

// Abort does nothing: the store drops an object that is never closed.
func (o *object) Abort() {}
