package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// adopt brings a data folder into today's layout, a folder for each task: DATA/ID/… A verifier
// with one task used to keep its files in DATA itself. They say whose they are, so they are moved to that
// task's folder, whether or not it is served now. A crash on the way leaves each file at one of the two
// places, and the next start goes on.
func adopt(data string, tasks []*taskfile.Open, log *slog.Logger) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return fmt.Errorf("couldn't read the data folder: %w", err)
	}
	m := &move{data: data, tasks: map[task.ID]*taskfile.Open{}}
	for _, open := range tasks {
		m.tasks[open.ID] = open
	}
	for _, entry := range entries {
		if f, ok := collect.ParseFileName(entry.Name()); ok {
			m.sort(f)
		}
	}
	if err := m.files(); err != nil {
		return err
	}
	if m.moved > 0 {
		log.Info("moved files into their tasks' folders", "files", m.moved)
	}
	return nil
}

// move is a move out of the old layout.
type move struct {
	data  string
	tasks map[task.ID]*taskfile.Open // That are served.
	known []placed                   // Files that say whose they are.
	stray []collect.FileName         // Damaged ones, that do not.
	moved int
}

// placed is a file and the task that it is of.
type placed struct {
	file collect.FileName
	of   task.ID
}

// sort reads whose a file is.
func (m *move) sort(f collect.FileName) {
	raw, err := os.ReadFile(filepath.Join(m.data, f.String()))
	if err == nil {
		var of task.ID
		if of, _, err = claims(f, raw); err == nil {
			m.known = append(m.known, placed{f, of})
			return
		}
	}
	m.stray = append(m.stray, f)
}

// claims returns what a file says it is. Whether that is true is for the task's puller to see.
func claims(f collect.FileName, raw []byte) (of task.ID, is collect.FileName, err error) {
	var id []byte
	if f.End {
		var end onion.End
		signed, err := onion.ParseEnd(raw)
		if err == nil {
			err = codec.Unmarshal(signed.End, &end)
		}
		if err != nil {
			return of, is, err
		}
		id, is = end.TaskID, collect.FileName{Epoch: end.Epoch, End: true}
	} else {
		batch, err := onion.ParseBatch(raw)
		if err != nil {
			return of, is, err
		}
		header, err := batch.Header()
		if err != nil {
			return of, is, err
		}
		id, is = header.TaskID, collect.FileName{Epoch: header.Epoch, Seq: header.Seq}
	}
	if len(id) != len(of) {
		return of, is, errors.New("it names no task")
	}
	return task.ID(id), is, nil
}

// files moves them all. A damaged file was the one task's that the folder held, if that is known; it is for
// that task's puller to put aside, and to fetch anew. Else it is put aside here.
func (m *move) files() error {
	of := map[task.ID]bool{}
	for _, f := range m.known {
		of[f.of] = true
		if err := m.one(f); err != nil {
			return err
		}
	}
	if len(of) == 0 && len(m.tasks) == 1 {
		for id := range m.tasks {
			of[id] = true
		}
	}
	for _, f := range m.stray {
		if len(of) != 1 {
			if err := collect.Quarantine(m.data, filepath.Join(m.data, f.String())); err != nil {
				return err
			}
			continue
		}
		for id := range of {
			if err := m.one(placed{f, id}); err != nil {
				return err
			}
		}
	}
	return nil
}

// one moves a file. Where its task's folder has another of that name, the better one stays, and the other
// is put aside: neither vanishes.
func (m *move) one(f placed) error {
	folder := filepath.Join(m.data, f.of.String())
	if err := durable.MakeFolder(folder, 0o700); err != nil {
		return fmt.Errorf("couldn't make a task's folder: %w", err)
	}
	from, to := filepath.Join(m.data, f.file.String()), filepath.Join(folder, f.file.String())
	there, err := os.ReadFile(to)
	if errors.Is(err, fs.ErrNotExist) {
		m.moved++
		return durable.Rename(from, to)
	}
	here, errHere := os.ReadFile(from)
	switch {
	case err == nil && errHere == nil && bytes.Equal(here, there):
		return os.Remove(from)
	case m.good(f, here) && !m.good(f, there):
		if err := collect.Quarantine(folder, to); err != nil {
			return err
		}
		m.moved++
		return durable.Rename(from, to)
	}
	return collect.Quarantine(folder, from)
}

// good says whether a file is what it must be. Of a task that is not served, only its form can be judged.
func (m *move) good(f placed, raw []byte) bool {
	of, is, err := claims(f.file, raw)
	if err != nil || of != f.of || is != f.file {
		return false
	}
	open := m.tasks[of]
	if open == nil {
		return true
	}
	if is.End {
		end, err := onion.ParseEnd(raw)
		if err == nil {
			_, err = end.Check(open.Task, onion.Context{TaskID: of, Epoch: is.Epoch, Hop: open.VerifierHop() - 1})
		}
		return err == nil
	}
	batch, err := onion.ParseBatch(raw)
	if err == nil {
		_, err = verifier.Check(open, batch)
	}
	return err == nil
}
