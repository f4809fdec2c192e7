package verifier

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// stateLabel opens every file of a verifier's state.
const stateLabel = "doona-state"

// stateHead begins a state: msgpack [head, [record …], [noted …], [ended …]], each part but the
// records as bytes.
type stateHead struct {
	Label   string
	Version uint64
	TaskID  []byte
}

// noted is a finding about what has no record. Where it has no place, Epoch and Seq are the largest numbers.
type noted struct {
	Name       string
	Count      uint64
	Epoch, Seq uint64
	Text       string
}

// ended says how many batches the signed end of an epoch tells of.
type ended struct{ Epoch, Batches uint64 }

// WriteState writes all that was added, in a canonical form: it depends on what was added and not on the
// order. Of epochs that are complete it has no slots; it is for verifiers that complete none.
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
	records := v.records()
	w.Array(len(records))
	for _, r := range records {
		if w.Err == nil {
			w.Err = r.write(w)
		}
	}
	notes := v.faults.noted()
	w.Array(len(notes))
	for i := range notes {
		write(&notes[i])
	}
	ends := v.ended()
	w.Array(len(ends))
	for i := range ends {
		write(&ends[i])
	}
	if w.Err != nil {
		return fmt.Errorf("couldn't write the state: %w", w.Err)
	}
	return nil
}

// records returns all records by epoch, number and version.
func (v *Verifier) records() (out []*Record) {
	for _, of := range v.sortedEpochs() {
		e := v.epochs[of]
		for _, seq := range e.seqs(0) {
			for _, one := range e.numbers[seq].versions {
				out = append(out, one.record)
			}
		}
	}
	return out
}

// noted returns the findings by name.
func (f findings) noted() []noted {
	out := []noted{}
	for name, one := range f {
		out = append(out, noted{string(name), one.count, one.first.Epoch, one.first.Seq, one.first.Text})
	}
	slices.SortFunc(out, func(a, b noted) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ended returns how many batches epochs have by their signed ends.
func (v *Verifier) ended() (out []ended) {
	for _, of := range v.sortedEpochs() {
		if n := v.epochs[of].batches; n > 0 {
			out = append(out, ended{of, n})
		}
	}
	return out
}

// ReadState adds what another verifier of the task wrote. After an error, part of it has been added.
func (v *Verifier) ReadState(in io.Reader) error {
	r := codec.NewReader(in)
	if n, err := r.Array(); err != nil || n != 4 {
		return errors.Join(errors.New("couldn't read a state: not one"), err)
	}
	var head stateHead
	if err := readPart(r, &head); err != nil {
		return err
	}
	if head.Label != stateLabel || head.Version != task.Version || string(head.TaskID) != string(v.open.ID[:]) {
		return errors.New("couldn't read a state: not of this version and task")
	}
	for _, read := range []func(*codec.Reader) error{v.readAndAdd, v.readNoted, v.readEnded} {
		n, err := r.Array()
		for ; err == nil && n > 0; n-- {
			err = read(r)
		}
		if err != nil {
			return fmt.Errorf("couldn't read a state: %w", err)
		}
	}
	return r.End()
}

// maxPart is the most bytes that a part of a state may claim, whose writer is trusted. Memory grows with what is read.
const maxPart = 1 << 40

func readPart(r *codec.Reader, part any) error {
	raw, err := r.Bytes(maxPart)
	if err != nil {
		return err
	}
	return codec.Unmarshal(raw, part)
}

func (v *Verifier) readAndAdd(r *codec.Reader) error {
	record, err := v.readRecord(r)
	if err != nil {
		return err
	}
	return v.AddRecord(record)
}

func (v *Verifier) readNoted(r *codec.Reader) error {
	var n noted
	if err := readPart(r, &n); err != nil {
		return err
	}
	if finding.Name(n.Name).Meaning() == "" || n.Count == 0 {
		return fmt.Errorf("no finding %q", n.Name)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults.add(finding.Name(n.Name), n.Count, Place{n.Epoch, n.Seq, n.Text})
	v.made = nil
	return nil
}

func (v *Verifier) readEnded(r *codec.Reader) error {
	var e ended
	if err := readPart(r, &e); err != nil {
		return err
	}
	if e.Batches > math.MaxInt64 {
		return fmt.Errorf("an end after %d batches", e.Batches)
	}
	return v.End(e.Epoch, e.Batches)
}
