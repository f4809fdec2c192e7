package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func taskTypesCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "types FILE",
		Short: "Write a task as TypeScript, so that report() takes only its values",
		Long: `Types writes a TypeScript file with the task's address, its owner's key and the type of its values.
A page imports it instead of copying address and key:

  import task from './task.ts';
  const doona = init({ ...task, budget: { epsilon: 10, delta: 1e-5, days: 365 } });
  doona.report(42);   // an error of the type checker if the task asks for texts

FILE is a signed bundle. For a stream it is the bundle of the first task. Get it from the task's owner:
whoever writes the key into the page decides whom the page trusts.`,
		Example: `  doona init try
  doona task types try/task.bundle --out task.ts`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := taskfile.LoadBundle(args[0])
			if err != nil {
				return err
			}
			text, err := taskTypes(open)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if out == "" {
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			return durable.WriteFile(out, []byte(text), 0o644)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: standard output)")
	return cmd
}

// taskTypes returns a task's TypeScript file.
func taskTypes(open *taskfile.Open) (string, error) {
	name, address, kind := "task", open.URL(), "TaskOptions"
	if s := open.Stream; s != nil {
		if s.Position > 0 {
			return "", fmt.Errorf("the task is at position %d of a stream: want the bundle of its first task", s.Position)
		}
		name, address, kind = "stream", open.StreamURL(open.Task, 0), "StreamOptions"
	}
	typ, values := valueType(open.Task)
	imports := kind
	if typ == "Vector" {
		imports += ", Vector"
	}
	return fmt.Sprintf(`// Written by 'doona task types'. Do not edit: the owner has signed this task.
import type { %s } from 'doona';

/** Asks for the %s. A value is %s. */
const task: %s<%s> = {
  %s: %s,
  owner: '%s',
};
export default task;
`, imports, open.Query.Info().Measure, values, kind, typ, name, "'"+address+"'", taskfile.FormatKey(open.Owner)), nil
}

// maxUnion is the largest number of categories for which the type lists every one.
const maxUnion = 64

// valueType returns the TypeScript type of a task's values, and says which values the task takes.
func valueType(t *task.Task) (typ, values string) {
	in := t.Input
	ends := fmt.Sprintf("from %s to %s", in.Lo, in.Hi)
	if in.Clip {
		ends += "; a value outside counts as the nearer end"
	}
	switch info := t.Query.Info(); {
	case info.Shape == task.PerText:
		return "string", fmt.Sprintf("a text, of which the first %d bytes count", in.Bins)
	case info.Ball():
		return "Vector", fmt.Sprintf("a list of %d numbers", in.Bins)
	case info.Shape == task.PerVector:
		return "Vector", fmt.Sprintf("a list of %d numbers, each %s", in.Bins, ends)
	case info.YesNo():
		return "0 | 1", "1 for yes, 0 for no"
	case in.Labels && in.Bins <= maxUnion:
		categories := make([]string, in.Bins)
		for i := range categories {
			categories[i] = strconv.Itoa(i)
		}
		return strings.Join(categories, " | "), "a category"
	case in.Labels:
		return "number", fmt.Sprintf("a category, a whole number from 0 to %d", in.Bins-1)
	}
	return "number", "a number " + ends
}
