// Package cli has the common parts of the commands: exit codes, --json output, and flag errors that name the flag and
// the allowed range.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
)

// Exit statuses of every command.
const (
	ExitOK    = 0
	ExitData  = 1 // the data is bad, a check failed or a release was refused
	ExitUsage = 2 // a wrong flag or flag value
)

// usageError marks an error that the caller made: a wrong flag or flag value.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as a wrong flag or flag value, so that the command exits with [ExitUsage]. It returns nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Usagef formats an error and marks it as [Usage] does.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Root returns a root command with the given subcommands. --help shows name, short and example.
func Root(name, short, example string, commands ...*cobra.Command) *cobra.Command {
	root := Prepare(name, short, &cobra.Command{Example: example})
	root.AddCommand(commands...)
	for _, cmd := range commands {
		if cmd.HasSubCommands() && !cmd.Runnable() { // otherwise cobra would ignore an unknown word after the command
			cmd.Args, cmd.RunE = NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// Moved adds former commands, which only name their replacement. now maps each to its replacement. Help does not list
// them, and the first release will not have them.
func Moved(root *cobra.Command, now map[string]string) *cobra.Command {
	for name, use := range now {
		root.AddCommand(&cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true,
			Long: fmt.Sprintf("Moved: use '%s'.", use),
			RunE: func(*cobra.Command, []string) error { return Usagef("moved: use '%s'", use) }})
	}
	return root
}

// Prepare makes cmd a root command, and adds the flags and settings that all programs share.
func Prepare(name, short string, cmd *cobra.Command) *cobra.Command {
	cmd.Use, cmd.Short = name, short
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.PersistentFlags().Bool("json", false, "print one JSON object as the last line of standard output")
	cmd.SetFlagErrorFunc(flagError)
	return cmd
}

// notParsed matches the error of package pflag about a flag value of the wrong type.
var notParsed = regexp.MustCompile(`^invalid argument (".*") for "(?:-\w, )?--([a-z0-9-]+)" flag: `)

// flagError replaces an error that matches notParsed by one with the flag's usage, which names the allowed values.
func flagError(cmd *cobra.Command, err error) error {
	if m := notParsed.FindStringSubmatch(err.Error()); m != nil {
		usage, _, _ := strings.Cut(cmd.Flag(m[2]).Usage, " (required)")
		return Usagef("invalid %s %s: want %s", m[2], m[1], usage)
	}
	return Usage(err)
}

// Run executes root with args and returns the exit status. It prints an error to standard error.
func Run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := checkWords(root, args)
	if err == nil {
		named, _, _ := root.Find(args)
		done := working(named.CommandPath(), os.Stderr)
		cmd, err = root.ExecuteC()
		done()
	}
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(display.Terminal(os.Stderr), "%s: %v\n", cmd.CommandPath(), err)
	var usage usageError
	if errors.As(err, &usage) || !cmd.Runnable() {
		fmt.Fprintf(os.Stderr, "See '%s --help'.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitData
}

// FlagError marks an [invalid.FieldError] as wrong usage, because its field is the name of a flag. It returns any other
// error unchanged.
func FlagError(err error) error {
	var field *invalid.FieldError
	if errors.As(err, &field) {
		return Usage(err)
	}
	return err
}

// Print writes result to w: as one line of JSON if the command has the flag --json, otherwise by calling human. It
// escapes characters that could command a terminal: see [display.Terminal].
func Print(cmd *cobra.Command, result any, human func(w io.Writer) error) error {
	w := cmd.OutOrStdout()
	if asJSON, err := cmd.Flags().GetBool("json"); err != nil || !asJSON {
		return human(display.Terminal(w))
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("couldn't encode the result: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", display.JSON(line))
	return err
}

// Require makes flags required and marks them in the help. If one is missing, the command exits with [ExitUsage].
func Require(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		cmd.Flag(name).Usage += " (required)"
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range flags {
			if !cmd.Flags().Changed(name) {
				return Usagef("missing flag --%s", name)
			}
		}
		return nil
	}
}

// NoArgs rejects positional arguments as wrong usage.
func NoArgs(cmd *cobra.Command, args []string) error { return Usage(cobra.NoArgs(cmd, args)) }

// ParseRange reads the value of a --range flag, such as "0,180".
func ParseRange(s string) (lo, hi float64, err error) {
	loText, hiText, ok := strings.Cut(s, ",")
	lo, errLo := strconv.ParseFloat(loText, 64)
	hi, errHi := strconv.ParseFloat(hiText, 64)
	if !ok || errLo != nil || errHi != nil || !(lo < hi) {
		return 0, 0, Usagef("invalid range %q: want LO,HI with LO below HI, such as 0,180", s)
	}
	return lo, hi, nil
}
