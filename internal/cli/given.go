package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/invalid"
)

// Given returns a function that returns a flag's value as text, and whether the user gave the flag.
func Given(cmd *cobra.Command) func(name string) (value string, ok bool) {
	return func(name string) (string, bool) {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			return "", false
		}
		return f.Value.String(), true
	}
}

// Refuse returns an error about the first of the named flags that the user gave, because the command would ignore it.
// why is the condition, such as "without --relay".
func Refuse(cmd *cobra.Command, why string, names ...string) error {
	for _, name := range names {
		if value, ok := Given(cmd)(name); ok {
			return Usage(invalid.Field(name, value, "no --"+name+" "+why))
		}
	}
	return nil
}

// checkWords returns the command that args name. A flag with one value that is given twice is an error, because pflag
// would ignore the first value. So is an empty value, such as that of an unset shell variable, because the default
// would replace it.
func checkWords(root *cobra.Command, args []string) (*cobra.Command, error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return root, nil // Run reports the unknown command
	}
	seen := map[string]bool{}
	for i, word := range rest {
		name, long := strings.CutPrefix(word, "--")
		name, value, with := strings.Cut(name, "=")
		if long && name == "" {
			return cmd, nil // all words after "--" are arguments
		}
		f := cmd.Flag(name)
		if !long || f == nil {
			continue
		}
		if !with && f.NoOptDefVal == "" && i+1 < len(rest) {
			value, with = rest[i+1], true
		}
		if with && value == "" {
			return cmd, Usagef("invalid %s %q: want a value, or no --%s", name, value, name)
		}
		if seen[name] && !manyValued(f.Value.Type()) {
			return cmd, Usagef("invalid %s: want --%s once, not twice", name, name)
		}
		seen[name] = true
	}
	return cmd, nil
}

// manyValued reports whether flags of a type, by pflag's name, may be repeated.
func manyValued(kind string) bool {
	return strings.HasSuffix(kind, "Array") || strings.HasSuffix(kind, "Slice") || strings.HasPrefix(kind, "stringTo")
}
