package main

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

func setFilesCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "files FOLDER --out FOLDER",
		Short: "Write what pages fetch, as files for your own site",
		Long: `Files writes the set and its keys as files that your own web server can serve, in place of the first
relay. Then a visitor's browser contacts no relay before a submission leaves. All files are signed: whoever
serves them can leave some out, but change nothing.

FOLDER is what 'doona set new' wrote. Serve the folder --out as it is, on the origin of the page or with the
header Access-Control-Allow-Origin, and name the path that the command prints. After a renewal write the files
again, on the day on which the renewal begins.`,
		Example: `  doona set files site --out public/doona`,
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readRenewals(args[0])
			if err != nil {
				return err
			}
			result, err := writeSetFiles(all, out)
			if err != nil {
				return err
			}
			return cli.Print(cmd, result, func(w io.Writer) error { return result.print(w, out) })
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder to write to")
	cli.Require(cmd, "out")
	return cmd
}

// writeSetFiles writes a set and its renewals below a folder. Pages name the first set. Its file has the last one that
// has begun.
func writeSetFiles(all []*setFolder, out string) (*filesResult, error) {
	last := all[len(all)-1].set.Tasks[0].Epochs
	r := &filesResult{Page: setPath(all[0].set.ID), Until: dayOf(last.Over())}
	now := uint64(time.Now().Unix())
	newest := all[0]
	for _, f := range all {
		if err := f.readTables(); err != nil {
			return nil, err
		}
		if err := f.writeKeys(r, out); err != nil {
			return nil, err
		}
		if f.set.Position > 0 {
			if err := r.writeFile(out, setPath(f.set.ID), tableset.Pack(f.raw)); err != nil {
				return nil, err
			}
		}
		if f.set.Tasks[0].Epochs.Start <= now {
			newest = f
		}
	}
	return r, r.writeFile(out, r.Page, tableset.Pack(newest.raw))
}

// writeKeys writes every block of keys of the set's clocks.
func (f *setFolder) writeKeys(r *filesResult, out string) error {
	done := map[int]bool{}
	for i, open := range f.tables {
		clock := f.set.Clock[i]
		if done[clock] {
			continue
		}
		done[clock] = true
		for first := uint64(0); first < open.Epochs.Count; first += onion.BlockEpochs {
			raw, err := tableset.KeysOf(open.Lists(), first).Bytes()
			if err == nil {
				err = r.writeFile(out, keysPath(f.set.ID, clock, first/onion.BlockEpochs), raw)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeFile writes one file below a folder and counts it.
func (r *filesResult) writeFile(out, path string, raw []byte) error {
	file := filepath.Join(out, filepath.FromSlash(path))
	if err := durable.MakeFolder(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	r.Files, r.Bytes = r.Files+1, r.Bytes+len(raw)
	return durable.WriteFile(file, raw, 0o644)
}

// setPath returns the path under which relays serve a set.
func setPath(id task.ID) string { return strings.Replace(endpoint.SetPath, "{set}", id.String(), 1) }

// keysPath returns the path under which relays serve a block of keys of a set's clock.
func keysPath(id task.ID, clock int, block uint64) string {
	return strings.NewReplacer("{set}", id.String(), "{clock}", strconv.Itoa(clock), "{block}",
		strconv.FormatUint(block, 10)).Replace(endpoint.SetKeysPath)
}
