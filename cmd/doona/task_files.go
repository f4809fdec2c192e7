package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

// filesFlags are the flags of `doona task files`.
type filesFlags struct {
	out, latest, recovery, ca string
}

// filesResult is what `doona task files` has written.
type filesResult struct {
	Page  string `json:"page"`  // the path of the document that the page names, below the folder
	Files int    `json:"files"` // their number
	Bytes int    `json:"bytes"`
	Until string `json:"until"` // the end of the last epoch with keys, RFC 3339
}

func taskFilesCommand() *cobra.Command {
	var f filesFlags
	cmd := &cobra.Command{
		Use:   "files FILE --out FOLDER",
		Short: "Write what pages fetch, as files for your own site",
		Long: `Files writes the task and its keys as files that your own web server can serve, in place of the
first relay. Then a visitor's browser contacts no relay before it sends a report. All files are signed:
whoever serves them can leave some out, but change nothing.

FILE is a signed bundle. Serve FOLDER as it is, on the origin of the page or with the header
Access-Control-Allow-Origin, and name the path that the command prints:

  init({ task: '/doona/v1/tasks/6d0c…', owner: 'ed25519:…', … })

A page fetches some 2 kB, and again in every eighth epoch. Names without an ending have no media type:
any, or none, will do.

If FILE is the first task of a stream, the command asks the stream's relays for the later tasks. Run it
again after each 'doona task renew'. It replaces the files.`,
		Example: `  doona init try
  doona task files try/task.bundle --out public/doona`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := f.run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return cli.Print(cmd, result, func(w io.Writer) error { return result.print(w, f.out) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "folder to write to")
	flags.StringVar(&f.latest, "latest-task", "", latestTaskUsage)
	flags.StringVar(&f.recovery, "recovery", "", "the stream's recovery key, ed25519:…, if it has one")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "out")
	return cmd
}

func (r *filesResult) print(w io.Writer, folder string) error {
	_, err := fmt.Fprintf(w, "%d files, %d bytes, below %s. Their keys end at %s.\nA page names …%s\n", r.Files, r.Bytes,
		folder, r.Until, r.Page)
	return err
}

func (f *filesFlags) run(ctx context.Context, file string) (*filesResult, error) {
	raw, err := taskfile.ReadFile(file)
	if err != nil {
		return nil, err
	}
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	open, err := bundle.Open(nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if open.Stream != nil {
		return f.writeStream(ctx, file)
	}
	r := &filesResult{Page: endpoint.PathOf(open.ID), Until: until(open)}
	if err := f.writeBlocks(r, open, bundle); err != nil {
		return nil, err
	}
	now := uint64(time.Now().Unix())
	return r, f.write(r, r.Page, bundle.Block(open.Lists(), open.EpochNear(now)))
}

// writeStream writes a stream, as far as its relays have it, with the keys of all tasks that are not over.
func (f *filesFlags) writeStream(ctx context.Context, file string) (*filesResult, error) {
	root, latest, trust, err := loadStream(file, f.latest, f.recovery)
	if err != nil {
		return nil, err
	}
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return nil, err
	}
	client := handover.NewRequester(nil, transport)
	newest := root.Task
	if latest != nil {
		newest = latest.Task
	}
	served, err := client.StreamOf(ctx, root, newest, trust)
	if err != nil {
		return nil, err
	}
	now := uint64(time.Now().Unix())
	chain := &taskfile.Chain{Statements: served.Statements}
	r := &filesResult{Page: strings.Replace(endpoint.StreamPath, "{task}", root.ID.String(), 1)}
	for _, t := range served.Tasks {
		r.Until = until(t)
		raw, open, err := client.BundleOf(ctx, t)
		if err != nil {
			return nil, err
		}
		bundle, err := taskfile.ParseBundle(raw)
		if err != nil {
			return nil, err
		}
		if t.Epochs.Over() <= now {
			chain.Tasks = append(chain.Tasks, bundle.Bare())
			continue
		}
		chain.Tasks = append(chain.Tasks, bundle.Block(open.Lists(), open.EpochNear(now)))
		if err := f.writeBlocks(r, open, bundle); err != nil {
			return nil, err
		}
	}
	return r, f.write(r, r.Page, chain)
}

// writeBlocks writes a task once for each of its blocks of keys.
func (f *filesFlags) writeBlocks(r *filesResult, open *taskfile.Open, bundle *taskfile.Bundle) error {
	for first := uint64(0); first < open.Epochs.Count; first += onion.BlockEpochs {
		path := strings.NewReplacer("{task}", open.ID.String(), "{block}",
			strconv.FormatUint(first/onion.BlockEpochs, 10)).Replace(endpoint.BlockPath)
		if err := f.write(r, path, bundle.Block(open.Lists(), first)); err != nil {
			return err
		}
	}
	return nil
}

// until returns when the last epoch of a task ends.
func until(open *taskfile.Open) string {
	return time.Unix(int64(open.Epochs.Over()), 0).UTC().Format(time.RFC3339)
}

func (f *filesFlags) write(r *filesResult, path string, document interface{ Bytes() ([]byte, error) }) error {
	raw, err := document.Bytes()
	if err != nil {
		return err
	}
	return r.writeFile(f.out, path, raw)
}
