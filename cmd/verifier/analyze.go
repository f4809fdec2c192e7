package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

type results struct {
	html, csv    string
	showUnusable bool
	dry          bool
	ledger, root string
	begin        bool
	budget       budgetFlags
}

func (r *results) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.html, "html", "", "also write the page to this file")
	cmd.Flags().StringVar(&r.csv, "csv", "", "also write the estimates to this file")
	cmd.Flags().BoolVar(&r.showUnusable, "show-unusable", false, "show the estimate of an unusable report too")
	cmd.Flags().BoolVar(&r.dry, "dry-run", false, "check and count only: charge nothing and print no answer")
	r.ledgerFlags(cmd)
}

func (r *results) ledgerFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.ledger, "ledger", "", "folder of the ledgers")
	cmd.Flags().StringVar(&r.root, "root", "", "bundle of the first task of the stream, for a later one")
	cmd.Flags().BoolVar(&r.begin, "new-ledger", false, "begin the stream's or task's ledger if there is none in the folder")
	r.budget.flags(cmd)
}

// aboutLedger is the help on what a command charges to a ledger.
const aboutLedger = `Before it prints results, it charges each of their epochs to the ledger of the task's stream, or of the
task: a file in the folder --ledger. Epochs that were charged before cost nothing. It finds a stream's
ledger by this task or the previous task. Otherwise give the first task: --root.
--total-epsilon and --total-delta are a budget for all published epochs together, composed exactly.
Without them, a task in no stream has the total that it claims. If the budget is too small for all epochs,
the command prints and charges nothing, and the exit status is 1. The same holds if the ledger was lost,
rolled back or damaged. --dry-run charges nothing. It prints all checks and counts, and what publishing
would cost, but no answer.`

// publish makes the verifier charge the epochs that it publishes to the ledger in --ledger, or else in folder. beside
// is a file of the verifier. If existing is true, a missing ledger is an error unless --new-ledger is given.
func (r *results) publish(cmd *cobra.Command, v *verifier.Verifier, open *taskfile.Open, folder, beside string,
	existing bool) error {
	if r.dry && r.showUnusable {
		return cli.Usagef("invalid --show-unusable with --dry-run: a dry run shows no answer")
	}
	budget, err := r.budget.get(cmd)
	if err != nil {
		return err
	}
	root, err := r.rootOf(open)
	if err != nil {
		return err
	}
	err = v.Publish(verifier.Publishing{Folder: cmp.Or(r.ledger, folder), Beside: beside, Budget: budget, Root: root,
		Existing: existing && !r.begin, Whole: true, DryRun: r.dry})
	if errors.Is(err, verifier.ErrNoLedger) {
		err = fmt.Errorf("%w (--ledger names the folder of the ledgers, --root the stream's first task; "+
			"--new-ledger begins "+
			"a ledger)", err)
	}
	return err
}

// opened returns a verifier of a task with all batches of files, which charges the epochs that it publishes.
func (r *results) opened(cmd *cobra.Command, bundle, keys string, files []string) (*taskfile.Open, *verifier.Verifier,
	error) {
	open, v, err := newVerifier(cmd, bundle, keys)
	if err == nil {
		err = r.publish(cmd, v, open, filepath.Dir(bundle), keys, later(open))
	}
	if err == nil {
		err = addFiles(v, "opening", files)
	}
	return open, v, err
}

// rootOf returns the id of the stream's first task, from --root; zero without the flag.
func (r *results) rootOf(open *taskfile.Open) (id task.ID, err error) {
	if r.root == "" {
		return id, nil
	}
	root, err := taskfile.LoadBundle(r.root)
	if err != nil {
		return id, err
	}
	return ledger.Root(open, root)
}

// print prints the report. Then it returns an error if there is no usable estimate, or if a finding is a fault.
func (r *results) print(cmd *cobra.Command, v *verifier.Verifier) error {
	if r.showUnusable {
		v.ShowUnusable()
	}
	made, err := v.Report()
	if err != nil {
		return err
	}
	if err := writeFile(r.html, func(w io.Writer) error { return report.WriteHTML(w, made) }); err != nil {
		return err
	}
	if err := writeFile(r.csv, func(w io.Writer) error { return report.WriteCSV(w, made) }); err != nil {
		return err
	}
	if err := cli.Print(cmd, made, func(w io.Writer) error { return report.Print(w, made) }); err != nil {
		return err
	}
	switch {
	case len(made.Ledger.Withheld) > 0: // only in a dry run; otherwise v.Report has returned an error
		return fmt.Errorf("%w: it is too small for this dry run", verifier.ErrBudget)
	case made.Batches == 0:
		return errors.Join(errors.New("no batch was released: there is no estimate"), finding.Faults(made.Findings))
	case !made.Usable && !r.showUnusable:
		return errors.Join(fmt.Errorf("the report is unusable: %s", made.UnusableBecause),
			finding.Faults(made.Findings))
	}
	return finding.Faults(made.Findings)
}

const aboutAnalyze = `Analyze checks each batch against its chain of signed manifests, opens it with the verifier's
keys, drops what is unreadable or repeated, and adds up the rest. It prints the estimate with its
standard error and interval from the data, the standard error of the worst case, the guarantee and its
assumptions, a ledger with the total cost of the epochs, and findings about what did not add up.

A file that fails its checks becomes a finding, and the other files count. The order of the files does
not matter. The exit status is 1 if a finding is a fault: all findings except slots that a relay dropped.
The files may include the signed end of an epoch (.end), which says how many batches the epoch has. In a
folder, analyze reads the files whose names end in .batch or .end.

With --follow it continues while folders fill. It waits until a file has not changed for a second. It ends
when all epochs have their signed end and all batches, or at an interrupt, and then prints the result.

Analyze reads batches in chunks, so they may have any size. It holds 10 bytes of each message in memory. What
it needs beyond 16 MiB goes to an unnamed encrypted file in the folder for temporary files (TMPDIR).

Lost messages widen the intervals by the largest change that they could make. The report says how many
messages were lost, and at which hop. If they could change the answer by the query's whole range, or if a
message of protocol splitmix is missing, the report is unusable: it says why, it has no estimate, and the
exit status is 1. --show-unusable prints the estimate anyway, with a note.

--shard I/K takes every K-th file from the I-th on, in the order of their names. --out writes the result to
a file for 'verifier merge'. Shards may run on any machine.

` + aboutLedger + `

The default of --ledger is the folder of the task bundle. For a later task of a stream, only --new-ledger
begins a ledger.

--html writes the page of 'verifier serve' as one file that loads nothing. --csv writes a line per epoch
and entry.`

func analyzeCommand() *cobra.Command {
	var taskPath, keysPath, shard, out string
	var follow bool
	var r results
	cmd := &cobra.Command{
		Use:     "analyze --task BUNDLE --keys FILE BATCH|FOLDER...",
		Short:   "Open batch files and print the estimate, its error bars and the guarantee",
		Long:    aboutAnalyze,
		Example: "  verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch --json",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && shard != "" {
				return cli.Usagef("invalid --follow with --shard: a shard needs all files from the start")
			}
			args, err := shardOf(args, shard)
			if err != nil {
				return err
			}
			if (shard != "" || out != "") && (out == "" || r != results{}) {
				return cli.Usagef("invalid shard %q: want --out FILE, and no flags about results: a "+
					"shard prints none", shard)
			}
			open, v, err := newVerifier(cmd, taskPath, keysPath)
			if err != nil {
				return err
			}
			if out == "" {
				if err := r.publish(cmd, v, open, filepath.Dir(taskPath), keysPath, later(open)); err != nil {
					return err
				}
			}
			if err := takeIn(cmd.Context(), v, args, follow); err != nil {
				return err
			}
			if out != "" {
				return writeState(cmd, v, out, len(args))
			}
			return r.print(cmd, v)
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cmd.Flags().StringVar(&keysPath, "keys", "", "the verifier's HPKE key file")
	cmd.Flags().StringVar(&shard, "shard", "", "I/K: the I-th of K parts of the files; needs --out")
	cmd.Flags().StringVar(&out, "out", "", "write a file for 'verifier merge' instead of an estimate")
	cmd.Flags().BoolVar(&follow, "follow", false, "continue while folders fill, until all epochs have ended")
	r.flags(cmd)
	cli.Require(cmd, "task", "keys")
	return cmd
}

// takeIn adds the given files. With follow it also adds later files, until all epochs are complete or the user
// interrupts.
func takeIn(ctx context.Context, v *verifier.Verifier, paths []string, follow bool) error {
	if !follow {
		return addFiles(v, "analyzing", paths)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return newIntake(v, "analyzing").follow(ctx, paths)
}

// later reports whether a task is a later task of a stream. The stream's ledger should then exist.
func later(open *taskfile.Open) bool { return open.Stream != nil && open.Stream.Position > 0 }

func newVerifier(cmd *cobra.Command, bundle, keyFile string) (*taskfile.Open, *verifier.Verifier, error) {
	open, err := taskfile.LoadBundle(bundle)
	if err != nil {
		return nil, nil, err
	}
	if err := cli.CloseToGroup(cmd.ErrOrStderr(), keyFile); err != nil {
		return nil, nil, err
	}
	keys, err := keyfile.LoadHPKE(keyFile)
	if err != nil {
		return nil, nil, err
	}
	v, err := verifier.New(open, keys)
	return open, v, err
}

// shardOf returns the files of shard "I/K", or all files if shard is "".
func shardOf(paths []string, shard string) ([]string, error) {
	if shard == "" {
		return paths, nil
	}
	paths, err := inFolders(paths)
	if err != nil {
		return nil, err
	}
	first, of, ok := strings.Cut(shard, "/")
	i, errI := strconv.Atoi(first)
	k, errK := strconv.Atoi(of)
	if !ok || errI != nil || errK != nil || i < 1 || i > k {
		return nil, cli.Usagef("invalid shard %q: want I/K with I from 1 to K, such as 1/3", shard)
	}
	var out []string
	for j, path := range slices.Sorted(slices.Values(paths)) {
		if j%k == i-1 {
			out = append(out, path)
		}
	}
	return out, nil
}

type stateWritten struct {
	Out   string `json:"out"`
	Files int    `json:"files"`
}

func writeState(cmd *cobra.Command, v *verifier.Verifier, path string, files int) error {
	var state bytes.Buffer
	if err := v.WriteState(&state); err != nil {
		return err
	}
	if err := durable.WriteFile(path, state.Bytes(), 0o600); err != nil { // mode 0600, because the file holds messages
		return fmt.Errorf("couldn't write the state: %w", err)
	}
	done := stateWritten{path, files}
	return cli.Print(cmd, done, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: the result of %d files, for 'verifier merge'\n", path, files)
		return err
	})
}

func mergeCommand() *cobra.Command {
	var taskPath string
	var r results
	cmd := &cobra.Command{
		Use:   "merge --task BUNDLE --ledger FOLDER FILE...",
		Short: "Merge the files of 'verifier analyze --out', and print the estimate",
		Long: `Merge reads the files that 'verifier analyze --shard I/K --out FILE' wrote, and prints what one
'verifier analyze' of all batches would have printed, byte for byte. It detects batches that two shards
have, messages that are in batches of two shards, and two batches that a relay signed for one number. It
needs no key. A file that cannot be read is an error, because the result would be incomplete.

A rollback mark beside the keys shows which ledger was charged. Merge has no keys, so --ledger must name the
folder of that ledger. If there is none yet, give --new-ledger.

` + aboutLedger,
		Example: "  verifier merge --task mean.bundle --ledger data/ledger one.state two.state three.state --json",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := taskfile.LoadBundle(taskPath)
			if err != nil {
				return err
			}
			v, err := verifier.New(open, nil)
			if err != nil {
				return err
			}
			if err := r.publish(cmd, v, open, "", taskPath, true); err != nil {
				return err
			}
			for _, path := range args {
				if err := readState(v, path); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			return r.print(cmd, v)
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	r.flags(cmd)
	cli.Require(cmd, "task", "ledger")
	return cmd
}

func readState(v *verifier.Verifier, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return v.ReadState(bufio.NewReader(f))
}

// writeFile writes a file. It does nothing if path is "".
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

type verification struct {
	OK       bool              `json:"ok"`
	Findings []finding.Finding `json:"findings"`
}

func verifyCommand() *cobra.Command {
	var taskPath string
	cmd := &cobra.Command{
		Use:   "verify --task BUNDLE BATCH|FOLDER...",
		Short: "Check batch files against their manifests; needs no key",
		Long: `Verify checks signatures, counts and hashes of batches along their whole chain of relays, and that
no batch number of an epoch is missing, occurs twice or is signed twice. Anyone with the task can do this,
because verify opens no batch. The exit status is 1 if a check fails. Each failure has a name.`,
		Example: "  verifier verify --task mean.bundle batches/*.batch",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.MinimumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := taskfile.LoadBundle(taskPath)
			if err != nil {
				return err
			}
			v := verifier.NewChecker(open)
			if err := addFiles(v, "verifying", args); err != nil {
				return err
			}
			out := verification{Findings: v.Findings()}
			failed := finding.Faults(out.Findings)
			out.OK = failed == nil
			if err := cli.Print(cmd, out, out.print); err != nil {
				return err
			}
			return failed
		},
	}
	cmd.Flags().StringVar(&taskPath, "task", "", "signed task bundle")
	cli.Require(cmd, "task")
	return cmd
}

func (v verification) print(w io.Writer) error {
	if v.OK {
		_, err := fmt.Fprintln(w, "all batches match their signed manifests")
		return err
	}
	for _, f := range v.Findings {
		if _, err := fmt.Fprintf(w, "%s, %d: %s\n", f.Name, f.Count, f.Example); err != nil {
			return err
		}
	}
	return nil
}
