package verifier

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

const stateLabel = "doona-state"

// stateHead is the head of a state, which is msgpack [head, [record …], [note …], [ended …]]. All parts except the
// records are encoded as bytes.
type stateHead struct {
	Label   string
	Version uint64
	TaskID  []byte
}

// ended is the number of batches of an epoch, from its signed end.
type ended struct{ Epoch, Batches uint64 }

// WriteState writes everything that was added, in a canonical form that does not depend on the order of adding. It is
// for a verifier that completes no epoch, because a complete epoch has no slots to write.
func (v *Verifier) WriteState(out io.Writer) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := codec.NewWriter(out)
	w.Array(4)
	write := func(part any) {
		raw, err := codec.Marshal(part)
		if w.Err == nil {
			w.Err = err
		}
		w.Bytes(raw)
	}
	write(&stateHead{stateLabel, task.Version, v.open.ID[:]})
	records := v.epochs.records()
	w.Array(len(records))
	for _, r := range records {
		if w.Err == nil {
			w.Err = r.write(w)
		}
	}
	notes := v.faults.notes()
	w.Array(len(notes))
	for i := range notes {
		write(&notes[i])
	}
	ends := v.epochs.ended()
	w.Array(len(ends))
	for i := range ends {
		write(&ends[i])
	}
	if w.Err != nil {
		return fmt.Errorf("couldn't write the state: %w", w.Err)
	}
	return nil
}

// ReadState adds the state of another verifier of the same task. After an error, part of it may have been added.
func (v *Verifier) ReadState(in io.Reader) error {
	r := codec.NewReader(in)
	if n, err := r.Array(); err != nil || n != 4 {
		return errors.Join(errors.New("couldn't read a state: the input is no state"), err)
	}
	var head stateHead
	if err := readPart(r, &head); err != nil {
		return err
	}
	if head.Label != stateLabel || head.Version != task.Version || string(head.TaskID) != string(v.open.ID[:]) {
		return errors.New("couldn't read a state: it has another version or task")
	}
	err := addAll(r, v.recorder.read, v.AddRecord)
	if err == nil {
		err = addAll(r, readNote, func(n finding.Note) error {
			v.NoteAt(finding.Name(n.Name), n.Count, Position{n.Epoch, n.Seq, n.Text})
			return nil
		})
	}
	if err == nil {
		err = addAll(r, readEnded, func(e ended) error { return v.End(e.Epoch, e.Batches) })
	}
	if err != nil {
		return fmt.Errorf("couldn't read a state: %w", err)
	}
	return r.End()
}

// maxPart is the maximum size of a part of a state, in bytes. The writer is trusted, and memory grows only with the
// bytes that are read.
const maxPart = 1 << 40

func readPart(r *codec.Reader, part any) error {
	raw, err := r.Bytes(maxPart)
	if err != nil {
		return err
	}
	return codec.Unmarshal(raw, part)
}

// addAll reads an array and calls add with each item.
func addAll[T any](r *codec.Reader, read func(*codec.Reader) (T, error), add func(T) error) error {
	n, err := r.Array()
	for ; err == nil && n > 0; n-- {
		var one T
		if one, err = read(r); err == nil {
			err = add(one)
		}
	}
	return err
}

func readNote(r *codec.Reader) (n finding.Note, err error) {
	if err = readPart(r, &n); err == nil && (finding.Name(n.Name).Meaning() == "" || n.Count == 0) {
		err = fmt.Errorf("unknown finding %q", n.Name)
	}
	return n, err
}

func readEnded(r *codec.Reader) (e ended, err error) {
	if err = readPart(r, &e); err == nil && e.Batches > math.MaxInt64 {
		err = fmt.Errorf("an epoch end with %d batches, want at most 2^63 - 1", e.Batches)
	}
	return e, err
}
