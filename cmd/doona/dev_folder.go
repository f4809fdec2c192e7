package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Files of 'doona dev', in the working folder.
const (
	folder        = ".doona"
	taskFile      = folder + "/task.json"  // Pages import it: the options of connect.
	stateFile     = folder + "/state.json" // The next start reads it. It is written last.
	partiesFolder = folder + "/parties"    // All parties' files, as quickstart writes them.
	devName       = "dev"                  // Name of the task's files.
)

// devState is the state that the next start reads.
type devState struct {
	Options   devOptions `json:"options"`
	Addresses []string   `json:"addresses"` // First the verifier's page, then the relays.

	open *taskfile.Open // Nil before the deployment is written.
}

// leastLeft is the time that a task must still last: if less is left, 'doona dev' makes another task.
const leastLeft = time.Hour

// openFolder returns the state of an earlier start and copies its options to o. Without one, or with anew, it returns a
// new state with the options in o.
func openFolder(cmd *cobra.Command, o *devOptions, anew bool) (*devState, error) {
	if anew {
		return &devState{Options: *o, Addresses: o.addresses()}, nil
	}
	kept, err := readState()
	if err != nil {
		return nil, err
	}
	if kept == nil {
		return &devState{Options: *o, Addresses: o.addresses()}, nil
	}
	if err := o.take(cmd, kept.Options); err != nil {
		return nil, err
	}
	if time.Until(time.Unix(int64(kept.open.Epochs.Over()), 0)) < leastLeft {
		fmt.Fprintf(cmd.ErrOrStderr(), "The task in %s has ended. Dev made another task, at another address.\n", folder)
		kept.open = nil
	}
	return kept, nil
}

// readState returns the state of an earlier start. It returns nil if there was no earlier start, or if that start was
// killed before it had written all files.
func readState() (*devState, error) {
	raw, err := os.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	p := &devState{}
	if err == nil {
		err = json.Unmarshal(raw, p)
	}
	if err == nil {
		p.open, err = taskfile.LoadBundle(filepath.Join(partiesFolder, devName+".bundle"))
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't continue with %s: %w (--new makes another task)", folder, err)
	}
	return p, nil
}

// deployment returns the deployment in the folder. If there is none, it writes one whose relays use these listeners.
func (p *devState) deployment(o *devOptions, relays []net.Listener) (*quickstart.Deployment, error) {
	if p.open != nil {
		return &quickstart.Deployment{Dir: partiesFolder, Owner: taskfile.FormatKey(p.open.Owner),
			Bundles: []*taskfile.Open{p.open}}, nil
	}
	draft, err := o.draft(time.Now())
	if err != nil {
		return nil, err
	}
	if err := clearFolder(); err != nil {
		return nil, err
	}
	var at []quickstart.Relay
	for _, l := range relays {
		at = append(at, quickstart.RelayAt(l))
	}
	d, err := quickstart.Write(partiesFolder, at, []quickstart.Draft{{Name: devName, Task: draft}})
	if err != nil {
		return nil, err
	}
	p.open = d.Bundles[0]
	return d, nil
}

// clearFolder removes the files of an earlier start, and makes git ignore the folder.
func clearFolder() error {
	// stateFile goes first: without it, readState ignores the other files.
	for _, old := range []string{stateFile, taskFile, partiesFolder} {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("couldn't delete the old task: %w", err)
		}
	}
	err := durable.MakeFolder(folder, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, ".gitignore"), []byte("*\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("couldn't make %s: %w", folder, err)
	}
	return nil
}

// offer holds what a page needs to report, and the address of the estimate.
type offer struct {
	connectOptions
	Estimate string `json:"estimate"` // The address of the verifier's page.
	File     string `json:"file"`     // Path of the JSON file that pages may import.
}

// connectOptions are the options of the SDK's connect.
type connectOptions struct {
	Task   string `json:"task"`
	Owner  string `json:"owner"`
	Budget budget `json:"budget"`
}

type budget struct {
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
	Days    float64 `json:"days"`
}

// noLimit is a budget that never refuses a report. Test clients have no data to protect.
var noLimit = budget{1e9, 1, 1}

// keep writes the files for pages and for the next start, and returns what to print.
func (p *devState) keep(d *quickstart.Deployment, listeners []net.Listener) (*offer, error) {
	p.Addresses = nil
	for _, l := range listeners {
		p.Addresses = append(p.Addresses, l.Addr().String())
	}
	out := &offer{connectOptions{d.TaskURL(0), d.Owner, noLimit}, "http://" + p.Addresses[0], taskFile}
	for _, f := range []struct {
		name    string
		content any
	}{{taskFile, out.connectOptions}, {stateFile, p}} {
		raw, err := json.MarshalIndent(f.content, "", "  ")
		if err == nil {
			err = durable.WriteFile(f.name, append(raw, '\n'), 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("couldn't write %s: %w", f.name, err)
		}
	}
	return out, nil
}

func (f *offer) print(w io.Writer, o *devOptions) error {
	_, err := fmt.Fprintf(w, `A task on this machine, to try a page with. NOTHING IS PRIVATE: %s.

  question   %s
  task       %s
  owner      %s
  estimate   %s

In the page:

  import { init } from 'doona';
  import task from '../%s';
  const doona = init({ ...task, debug: true });
  doona.report(%s);

Waiting for reports. End with Ctrl-C.
`, o.whyNot(), o.question(), f.Task, f.Owner, f.Estimate, f.File, o.example())
	return err
}
