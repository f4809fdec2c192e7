package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/invalid"
)

// Given returns a function that looks up the value of a flag as it was written, and whether it was.
func Given(cmd *cobra.Command) func(name string) (value string, ok bool) {
	return func(name string) (string, bool) {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			return "", false
		}
		return f.Value.String(), true
	}
}

// Refuse is an error about the first of these flags that was given, because the command would ignore
// it. why says when, such as "without --relay".
func Refuse(cmd *cobra.Command, why string, names ...string) error {
	for _, name := range names {
		if value, ok := Given(cmd)(name); ok {
			return Usage(invalid.Field(name, value, "no --"+name+" "+why))
		}
	}
	return nil
}

// refuseTwice is an error where a flag that has one value is given twice: the first would be ignored.
// It returns the command too.
func refuseTwice(root *cobra.Command, args []string) (*cobra.Command, error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return root, nil // the command that is not there is the error
	}
	seen := map[string]bool{}
	for _, word := range rest {
		name, long := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if long && name == "" {
			return cmd, nil // arguments alone come after "--"
		}
		f := cmd.Flag(name)
		if !long || f == nil || manyValued(f.Value.Type()) {
			continue
		}
		if seen[name] {
			return cmd, Usagef("invalid %s: want --%s once, not twice", name, name)
		}
		seen[name] = true
	}
	return cmd, nil
}

// manyValued says whether flags of a type, as pflag names it, may be repeated.
func manyValued(kind string) bool {
	return strings.HasSuffix(kind, "Array") || strings.HasSuffix(kind, "Slice") || strings.HasPrefix(kind, "stringTo")
}
