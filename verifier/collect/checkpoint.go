package verifier

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// A verifier that pulls writes down what it has learnt, so that no batch is opened twice and keys can go:
//
//	EEEEEE-NNNNNN-VERSION.record   the [Record] of a batch, once it has been opened
//	EEEEEE.epoch                   what an epoch adds up to, once its signed end is here; then its
//	                               records go, and its key
//	findings                       what was found that has no record
//
// Each file is the SHA-256 of what follows, and a msgpack form.

// epochLabel opens every file of an epoch, notesLabel that of findings.
const (
	epochLabel = "doona-epoch"
	notesLabel = "doona-findings"
)

// closedEpoch is what stays of an epoch that is complete.
type closedEpoch struct {
	Label     string
	Version   uint64
	TaskID    []byte
	Epoch     uint64
	Batches   uint64 // By its signed end.
	Aggregate []byte // See packCounters.
	Counts    Counts
	Hops      []HopCounts
	Missing   []uint64 // Slots of released batches that were lost, by hop.
	Exposed   uint64   // 1: messages of clients came here to be opened; else 0.
	Findings  []noted
	Evidence  []Evidence
}

// notes are findings that have no record.
type notes struct {
	Label   string
	Version uint64
	TaskID  []byte
	Noted   []noted
}

// closedBytes returns the msgpack form of an epoch that is complete.
func (v *Verifier) closedBytes(of uint64) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.epoch(of)
	if !e.closed {
		return nil, fmt.Errorf("couldn't write epoch %d down: it is not complete", of)
	}
	c := closedEpoch{Label: epochLabel, Version: task.Version, TaskID: v.open.ID[:], Epoch: of, Batches: e.batches,
		Aggregate: packCounters(e.total.aggregate), Counts: e.total.counts, Hops: e.total.hops,
		Missing: e.total.missing, Findings: e.total.findings.noted(), Evidence: []Evidence{}}
	if e.exposed {
		c.Exposed = 1
	}
	if one := e.total.findings[FindingEquivocation]; one != nil {
		c.Evidence = one.evidence
	}
	return codec.Marshal(&c)
}

// restoreEpoch takes an epoch that was complete.
func (v *Verifier) restoreEpoch(of uint64, raw []byte) error {
	var c closedEpoch
	if err := codec.Unmarshal(raw, &c); err != nil {
		return err
	}
	if c.Label != epochLabel || c.Version != task.Version || string(c.TaskID) != string(v.open.ID[:]) ||
		c.Epoch != of || of >= v.open.Epochs.Count || len(c.Hops) != v.open.VerifierHop() ||
		len(c.Missing) != len(c.Hops)+1 {
		return errors.New("couldn't read an epoch: not that of its name")
	}
	t := &total{aggregate: v.mechanism.Aggregate(), counts: c.Counts, hops: c.Hops, missing: c.Missing,
		findings: findings{}}
	if err := unpackCounters(t.aggregate, c.Aggregate); err != nil {
		return err
	}
	for _, n := range c.Findings {
		t.findings.add(FindingName(n.Name), n.Count, place{n.Epoch, n.Seq, n.Text})
	}
	if one := t.findings[FindingEquivocation]; one != nil {
		one.evidence = c.Evidence
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	*v.epoch(of) = epoch{closed: true, batches: c.Batches, exposed: c.Exposed == 1, total: t}
	return nil
}

// digest returns the SHA-256 of a checkpoint's content.
func digest(content []byte) []byte {
	h := sha256.New()
	h.Write(content)
	return h.Sum(nil)
}

// writeChecked writes a file with the hash of its content.
func writeChecked(path string, content []byte) error {
	if err := durable.WriteFile(path, append(digest(content), content...), 0o600); err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	return nil
}

var errDamaged = errors.New("its content is not that of its hash")

// readChecked reads a file that writeChecked wrote, or errDamaged.
func readChecked(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(raw) < sha256.Size {
		return nil, errDamaged
	}
	content := raw[sha256.Size:]
	if !bytes.Equal(raw[:sha256.Size], digest(content)) {
		return nil, errDamaged
	}
	return content, nil
}

// streamChecked is writeChecked of a file that is not in memory.
func streamChecked(path string, write func(io.Writer) error) error {
	f, err := durable.Create(path, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	h := sha256.New()
	f.Write(make([]byte, sha256.Size)) // its error comes again
	if err := write(io.MultiWriter(f, h)); err != nil {
		f.Abort()
		return err
	}
	f.WriteAt(h.Sum(nil), 0)
	if err := f.Commit(); err != nil {
		return fmt.Errorf("couldn't write a checkpoint: %w", err)
	}
	return nil
}

// checkedFile reads the content of a file that writeChecked or streamChecked wrote. What is read is believed once
// check has said that it is what was written.
type checkedFile struct {
	*os.File
	sum  []byte
	read hash.Hash // of what has been read
}

// openChecked opens a file at its content, or returns errDamaged.
func openChecked(path string) (*checkedFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &checkedFile{file, make([]byte, sha256.Size), sha256.New()}
	if _, err := io.ReadFull(file, f.sum); err != nil {
		file.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errDamaged
		}
		return nil, err
	}
	return f, nil
}

// Read is that of [io.Reader].
func (f *checkedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.read.Write(p[:n])
	return n, err
}

// check reads what is left, and returns errDamaged where the content is another than was written.
func (f *checkedFile) check() error {
	if _, err := io.Copy(f.read, f.File); err != nil {
		return err
	}
	if !bytes.Equal(f.sum, f.read.Sum(nil)) {
		return errDamaged
	}
	return nil
}
