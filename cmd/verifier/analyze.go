package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

func analyzeCommand() *cobra.Command {
	var taskPath, keysPath, htmlPath, csvPath string
	cmd := &cobra.Command{
		Use:   "analyze --task BUNDLE --keys FILE BATCH...",
		Short: "Open batch files and print the estimate, its error bars and the guarantee",
		Long: `Analyze checks each batch against its chain of signed manifests, opens it with the verifier's
keys, drops what is unreadable or repeated, and adds up the rest. It prints the estimate with its
standard error and interval from the data, the standard error of the worst case, the guarantee and
what it rests on, a ledger of what the epochs cost together, and findings about what did not add up.

A batch that fails its checks is refused: exit status 1, and nothing is printed of it.

--html writes the page of 'verifier serve' as one file that loads nothing, --csv a line per epoch and
entry.`,
		Example: "  verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch --json",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := taskfile.LoadBundle(taskPath)
			if err != nil {
				return err
			}
			keys, err := keyfile.LoadHPKE(keysPath)
			if err != nil {
				return err
			}
			v, err := verifier.New(open, keys)
			if err != nil {
				return err
			}
			bar := cli.Progress("analyzing", len(args))
			for _, path := range args {
				if err := addFile(v, path); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				bar.Add(1)
			}
			r, err := v.Report()
			if err != nil {
				return err
			}
			if err := writeFile(htmlPath, v.WriteHTML); err != nil {
				return err
			}
			if err := writeFile(csvPath, func(w io.Writer) error { return r.WriteCSV(w, open.Task) }); err != nil {
				return err
			}
			if err := cli.Print(cmd, r, r.Print); err != nil {
				return err
			}
			if r.Batches == 0 {
				return errors.New("no batch was released: there is no estimate")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cmd.Flags().StringVar(&keysPath, "keys", "", "the verifier's HPKE key file")
	cmd.Flags().StringVar(&htmlPath, "html", "", "also write the page to this file")
	cmd.Flags().StringVar(&csvPath, "csv", "", "also write the estimates to this file")
	cli.Require(cmd, "task", "keys")
	return cmd
}

// writeFile writes a file, unless its path is empty.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("couldn't write the report: %w", err)
	}
	return nil
}

func readBatch(path string) (*onion.Batch, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the batch: %w", err)
	}
	return onion.ParseBatch(raw)
}

func addFile(v *verifier.Verifier, path string) error {
	batch, err := readBatch(path)
	if err != nil {
		return err
	}
	return v.Add(batch)
}

// verification is what `verifier verify --json` prints.
type verification struct {
	OK       bool               `json:"ok"`
	Findings []verifier.Finding `json:"findings"`
}

func verifyCommand() *cobra.Command {
	var taskPath string
	cmd := &cobra.Command{
		Use:   "verify --task BUNDLE BATCH...",
		Short: "Check batch files against their manifests; needs no key",
		Long: `Verify checks signatures, counts and hashes of batches along their whole chain of relays. Anyone
with the task can do it: nothing is opened. Exit status 1 when a batch fails.`,
		Example: "  verifier verify --task mean.bundle batches/*.batch",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := taskfile.LoadBundle(taskPath)
			if err != nil {
				return err
			}
			out := verification{OK: true, Findings: []verifier.Finding{}}
			for _, path := range args {
				if err := verifyFile(open, path); err != nil {
					out.OK = false
					out.Findings = append(out.Findings,
						verifier.Finding{Name: verifier.FindingRefused, Count: 1, Example: path + ": " + err.Error()})
				}
			}
			if err := cli.Print(cmd, out, out.print); err != nil {
				return err
			}
			if !out.OK {
				return fmt.Errorf("%d of %d batches failed", len(out.Findings), len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cli.Require(cmd, "task")
	return cmd
}

func verifyFile(open *taskfile.Open, path string) error {
	batch, err := readBatch(path)
	if err != nil {
		return err
	}
	_, err = verifier.Check(open, batch)
	return err
}

func (v verification) print(w io.Writer) error {
	if v.OK {
		_, err := fmt.Fprintln(w, "all batches are as their relays signed them")
		return err
	}
	for _, f := range v.Findings {
		if _, err := fmt.Fprintf(w, "%s: %s\n", f.Name, f.Example); err != nil {
			return err
		}
	}
	return nil
}
