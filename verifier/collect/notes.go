package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// findingStore keeps a puller's findings that belong to no record, both in a file of the folder and in the verifier.
type findingStore struct {
	folder   *folder
	verifier *verifier.Verifier
	kept     []finding.Note // As stored in the file.
}

const notesLabel = "doona-findings"

type notes struct {
	Label    string
	Version  uint64
	TaskID   []byte
	Findings []finding.Note
}

// read reads the findings that an earlier run stored.
func (b *findingStore) read() error {
	raw, err := readChecked(filepath.Join(b.folder.dir, notesName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var kept notes
	if err == nil {
		err = codec.Unmarshal(raw, &kept)
	}
	if err == nil && (kept.Label != notesLabel || kept.Version != task.Version ||
		string(kept.TaskID) != string(b.folder.open.ID[:])) {
		err = errors.New("the file belongs to another task")
	}
	if err != nil {
		return err
	}
	b.kept = kept.Findings
	return nil
}

// show adds the first earlier findings, which earlier runs stored, to the verifier. It drops the finding of a missing
// batch that was restored.
func (b *findingStore) show(earlier int, cursors map[uint64]*cursor) {
	var left []finding.Note
	for i, n := range b.kept {
		if c := cursors[n.Epoch]; c != nil && n.Name == string(finding.Missing) && c.kept[n.Seq] {
			continue
		}
		left = append(left, n)
		if i < earlier {
			b.verifier.NoteAt(finding.Name(n.Name), n.Count,
				verifier.Position{Epoch: n.Epoch, Seq: n.Seq, Text: n.Text})
		}
	}
	b.kept = left // the next finding writes it to the file
}

// note stores a finding that belongs to no record, and syncs it to disk. The same finding counts once over all runs.
// For each name and epoch it stores only two: the first, and the last with the count of all after the first. So no
// relay can fill the folder. Missing batches are stored one by one, up to [mostMissing], because the operator may
// restore them.
func (b *findingStore) note(name finding.Name, at verifier.Position) error {
	all, before := slices.Clone(b.kept), []*finding.Note{}
	for i := range all {
		n := &all[i]
		if n.Name == string(name) && n.Text == at.Text {
			return nil
		}
		if n.Name == string(name) && n.Epoch == at.Epoch {
			before = append(before, n)
		}
	}
	if len(before) < 2 || name == finding.Missing {
		all = append(all, finding.Note{Name: string(name), Count: 1, Epoch: at.Epoch, Seq: at.Seq, Text: at.Text})
	} else if last := before[len(before)-1]; at.Seq > last.Seq {
		*last = finding.Note{Name: last.Name, Count: last.Count + 1, Epoch: at.Epoch, Seq: at.Seq, Text: at.Text}
	} else {
		return nil
	}
	raw, err := codec.Marshal(&notes{notesLabel, task.Version, b.folder.open.ID[:], all})
	if err != nil {
		return err
	}
	if err := writeChecked(filepath.Join(b.folder.dir, notesName), raw); err != nil {
		return err
	}
	b.kept = all
	b.verifier.NoteAt(name, 1, at)
	return nil
}

// mostMissing is the maximum number of findings of missing batches in an epoch, because a false relay can name any
// batch.
const mostMissing = 100

// noteMissing notes that a batch is missing here that the relay calls confirmed, or that more than mostMissing are.
func (b *findingStore) noteMissing(epoch, seq uint64) error {
	before := 0
	for _, n := range b.kept {
		if n.Name == string(finding.Missing) && n.Epoch == epoch {
			before++
		}
	}
	at := verifier.BatchPosition(epoch, seq)
	at.Text += " was confirmed earlier, but is missing here"
	switch {
	case before == mostMissing:
		at = positionOf(epoch, seq, "more than %d batches of epoch %d were confirmed earlier, but are missing here",
			mostMissing, epoch)
	case before > mostMissing:
		return nil
	}
	return b.note(finding.Missing, at)
}

func positionOf(epoch, seq uint64, format string, args ...any) verifier.Position {
	return verifier.Position{Epoch: epoch, Seq: seq, Text: fmt.Sprintf(format, args...)}
}
