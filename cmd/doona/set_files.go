package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
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
			folder, err := readSetFolder(args[0])
			if err == nil {
				err = folder.readTables()
			}
			if err != nil {
				return err
			}
			result, err := folder.writeFiles(out)
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

// writeFiles writes the set and every block of keys of its clocks below a folder.
func (f *setFolder) writeFiles(out string) (*filesResult, error) {
	days := f.set.Tasks[0].Epochs
	r := &filesResult{Page: setPath(f.set.RootID()), Until: dayOf(days.Over())}
	if err := r.writeFile(out, r.Page, f.raw); err != nil {
		return nil, err
	}
	own := setPath(f.set.ID)
	if own != r.Page {
		if err := r.writeFile(out, own, f.raw); err != nil {
			return nil, err
		}
	}
	done := map[int]bool{}
	for i, open := range f.tables {
		clock := f.set.Clock[i]
		if done[clock] {
			continue
		}
		done[clock] = true
		for first := uint64(0); first < open.Epochs.Count; first += onion.BlockEpochs {
			raw, err := tableset.KeysOf(open.Lists(), first).Bytes()
			if err != nil {
				return nil, err
			}
			path := fmt.Sprintf("/v1/blocks/%s/%d/%d", f.set.ID, clock, first/onion.BlockEpochs)
			if err := r.writeFile(out, path, raw); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
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
func setPath(id task.ID) string { return "/v1/sets/" + id.String() }
