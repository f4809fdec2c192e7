package verifier

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Check checks a batch of the last relay without opening its slots, and returns its chain of manifests, first relay
// first. It needs no key.
func Check(open *taskfile.Open, batch *onion.Batch) ([]onion.Manifest, error) {
	header, err := batch.Header()
	if err != nil {
		return nil, err
	}
	if header.Epoch >= open.Epochs.Count {
		return nil, fmt.Errorf("couldn't accept a batch of epoch %d: the task has %d", header.Epoch, open.Epochs.Count)
	}
	last := onion.Context{TaskID: open.ID, Epoch: header.Epoch, Hop: open.VerifierHop() - 1}
	return batch.Check(open.Task, last, header.Seq)
}

// Fault is the error of a file that is not a valid batch of the task's last relay.
type Fault struct {
	Name   finding.Name
	Err    error
	Signed *onion.SignedManifest // The manifest, if the last relay signed it for this epoch and batch number; else nil.
	Epoch  uint64                // Epoch of Signed.
	Seq    uint64                // Batch number of Signed.
}

// Error returns the fault in words.
func (f *Fault) Error() string { return fmt.Sprintf("%s: %v", f.Name, f.Err) }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// maxSeq limits batch numbers, and the number of batches in a signed end.
const maxSeq = 1 << 53

// Incoming is a batch of the last relay with checked manifests, before its slots are read.
type Incoming struct {
	Signed *onion.SignedManifest // Signed by the last relay.
	chain  []onion.Manifest      // In order; the first relay is first.
	each   eachChunk
}

// eachChunk calls do with the lane and the slots of every chunk. It can be called only once. It returns a [Fault] if
// the batch is at fault. Other errors come from the reader or from do.
type eachChunk func(do func(lane int, slots [][]byte) error) error

// Check reads all slots and checks them, without opening them.
func (b *Incoming) Check() error { return b.each(func(int, [][]byte) error { return nil }) }

// Last returns the last relay's manifest.
func (b *Incoming) Last() *onion.Manifest { return &b.chain[len(b.chain)-1] }

// Receive reads a batch file of the last relay up to its first slot, and checks its chain of manifests. It needs no
// key. It returns a [Fault] if the file is at fault. Other errors come from the reader.
func Receive(open *taskfile.Open, in io.Reader) (*Incoming, error) {
	r, err := onion.NewBatchReader(source{in}, onion.MaxManifest(open.Task, open.VerifierHop()-1))
	if err != nil {
		return nil, readFault(err, finding.Foreign, nil, nil)
	}
	m, fault := signedHere(open, r.Signed())
	if fault != nil {
		return nil, fault
	}
	chain, err := r.Check(open.Task, onion.Context{TaskID: open.ID, Epoch: m.Epoch, Hop: int(m.Hop)}, m.Seq)
	if err != nil {
		return nil, &Fault{FaultName(err), err, r.Signed(), m.Epoch, m.Seq}
	}
	if err := r.Hashes(); err != nil {
		err = fmt.Errorf("couldn't accept batch %d of hop %d: %w", m.Seq, m.Hop, err)
		return nil, readFault(err, finding.Tampered, r.Signed(), m)
	}
	each := func(do func(lane int, slots [][]byte) error) error {
		for {
			lane, slots, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return readFault(fmt.Errorf("couldn't read a batch: %w", err), finding.Tampered, r.Signed(), m)
			}
			if err := do(lane, slots); err != nil {
				return err
			}
		}
	}
	return &Incoming{r.Signed(), chain, each}, nil
}

// inMemory checks a batch that is completely in memory.
func inMemory(open *taskfile.Open, batch *onion.Batch) (*Incoming, error) {
	chain, err := Check(open, batch)
	if err != nil {
		return nil, err
	}
	each := func(do func(lane int, slots [][]byte) error) error {
		for lane, slots := range batch.Ciphertexts {
			for chunk := range slices.Chunk(slots, onion.ChunkSlots) {
				if err := do(lane, chunk); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return &Incoming{batch.Signed(), chain, each}, nil
}

// source turns errors of the underlying reader into ReadErrors, so that they differ from faults of the batch.
type source struct{ io.Reader }

// Read implements [io.Reader].
func (s source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &ReadError{err}
	}
	return n, err
}

// ReadError is an error of the disk while a file is read, and no fault of the batch.
type ReadError struct{ Err error }

// Error returns the reader's error.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the reader's error.
func (e *ReadError) Unwrap() error { return e.Err }

// readFault turns an error of reading a batch into a ReadError or a Fault. other names a Fault that is neither a
// truncation nor a wrong slot size.
func readFault(err error, other finding.Name, signed *onion.SignedManifest, m *onion.Manifest) error {
	f := &Fault{Name: other, Err: err, Signed: signed}
	if m != nil {
		f.Epoch, f.Seq = m.Epoch, m.Seq
	}
	unread := new(ReadError)
	switch {
	case errors.As(err, &unread):
		return unread
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Name = finding.Truncated
	case errors.Is(err, onion.ErrSlotSize):
		f.Name = finding.Counts
	}
	return f
}

// signedHere opens a signed manifest. It checks that the task's last relay signed it, for an epoch of the task.
func signedHere(open *taskfile.Open, s *onion.SignedManifest) (*onion.Manifest, *Fault) {
	last := open.VerifierHop() - 1
	m, err := s.Open(open.Task, last)
	claimed, unread := (&onion.Batch{Manifest: s.Manifest}).Header()
	switch {
	case unread != nil && err == nil, unread == nil && string(claimed.TaskID) != string(open.ID[:]):
		return nil, &Fault{Name: finding.Foreign, Err: errors.New("the manifest is not of this task")}
	case unread == nil && claimed.Hop != uint64(last):
		return nil, &Fault{Name: finding.Foreign,
			Err: fmt.Errorf("its manifest is of hop %d, want the last relay, hop %d", claimed.Hop, last)}
	case err != nil:
		return nil, &Fault{Name: finding.Signature, Err: err}
	case m.Epoch >= open.Epochs.Count:
		return nil, &Fault{Name: finding.Foreign,
			Err: fmt.Errorf("couldn't accept a batch of epoch %d: the task has %d", m.Epoch, open.Epochs.Count)}
	case m.Seq >= maxSeq:
		return nil, &Fault{Name: finding.Counts, Err: fmt.Errorf("couldn't accept batch %d: want below 2^53", m.Seq)}
	}
	return m, nil
}

// FaultName names the fault of a batch from the error of its check. The signature of its last manifest must be valid.
func FaultName(err error) finding.Name {
	switch {
	case errors.Is(err, onion.ErrCounts):
		return finding.Counts
	case errors.Is(err, onion.ErrChain):
		return finding.Chain
	case errors.Is(err, onion.ErrCiphertexts):
		return finding.Tampered
	}
	return finding.Foreign
}
