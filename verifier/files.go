package verifier

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// AddFile adds a file: a batch, or the signed end of an epoch. A fault of the file becomes a finding; a returned error
// is a fault of the verifier. AddFile reads the file once, a chunk at a time.
func (v *Verifier) AddFile(name string, in io.Reader) error {
	buffered := bufio.NewReaderSize(in, ReadAhead)
	if lead, _ := buffered.Peek(1); len(lead) == 1 && lead[0] == endLead {
		return v.addEnd(name, buffered)
	}
	err := v.addBatch(name, buffered)
	if fault := new(Fault); errors.As(err, &fault) {
		v.Note(fault.Name, name+": "+fault.Err.Error())
		if fault.Signed == nil {
			return nil
		}
		return v.RecordManifest(fault.Signed, fault.Epoch, fault.Seq, 0)
	}
	if unread := new(ReadError); errors.As(err, &unread) {
		v.Note(finding.Unread, name+": "+unread.Err.Error())
		return nil
	}
	return err
}

// ReadAhead is the size of the read buffer of a file, in bytes.
const ReadAhead = 256 << 10

// addBatch adds a batch file. If the file is at fault, the error is a [Fault] or [ReadError].
func (v *Verifier) addBatch(name string, in io.Reader) error {
	b, err := Receive(v.open, in)
	if err != nil {
		return err
	}
	last := b.Last()
	if v.recorder.keys == nil || v.has(last.Epoch, last.Seq) {
		if err := b.Check(); err != nil {
			return err
		}
		return v.RecordManifest(b.Signed, last.Epoch, last.Seq, 1)
	}
	r, err := v.recorder.record(b)
	if errors.Is(err, keyfile.ErrErased) {
		v.Note(finding.Erased, name+": "+err.Error())
		return v.RecordManifest(b.Signed, last.Epoch, last.Seq, 0)
	}
	if err != nil {
		return err
	}
	return v.AddRecord(r)
}

// endLead is the first byte of the signed end of an epoch, an array of 2 in msgpack. A batch is an array of 4.
const endLead = 0x92

// addEnd adds a file with the signed end of an epoch.
func (v *Verifier) addEnd(name string, in io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(in, maxEnd))
	if err != nil {
		v.Note(finding.Unread, name+": "+err.Error())
		return nil
	}
	of, batches, err := readEnd(v.open, raw)
	if err != nil {
		v.Note(finding.Foreign, name+": "+err.Error())
		return nil
	}
	return v.End(of, batches)
}

// maxEnd is the maximum size of a signed end, in bytes.
const maxEnd = 1 << 20

// readEnd checks that the task's last relay signed the end of an epoch. It returns the epoch and its number of batches.
func readEnd(open *taskfile.Open, raw []byte) (epoch, batches uint64, err error) {
	signed, err := onion.ParseEnd(raw)
	if err != nil {
		return 0, 0, err
	}
	var claimed onion.End
	if err := codec.Unmarshal(signed.End, &claimed); err != nil {
		return 0, 0, err
	}
	if claimed.Epoch >= open.Epochs.Count {
		return 0, 0, fmt.Errorf("the end of epoch %d: the task has %d", claimed.Epoch, open.Epochs.Count)
	}
	last := onion.Context{TaskID: open.ID, Epoch: claimed.Epoch, Hop: open.VerifierHop() - 1}
	chain, err := signed.Check(open.Task, last)
	if err != nil {
		return 0, 0, err
	}
	return claimed.Epoch, chain[len(chain)-1].Batches, nil
}
