package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/verifier"
)

type budgetFlags struct{ verifier.Budget }

func (b *budgetFlags) flags(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&b.Epsilon, "total-epsilon", 0,
		"the most ε that all published epochs of a stream, or task, may cost together, above 0; with --total-delta")
	cmd.Flags().Float64Var(&b.Delta, "total-delta", 0, "the δ of --total-epsilon, above 0 and below 1")
}

// get returns the budget, or nil if no flag is set.
func (b *budgetFlags) get(cmd *cobra.Command) (*verifier.Budget, error) {
	given := cmd.Flags().Changed
	switch {
	case !given("total-epsilon") && !given("total-delta"):
		return nil, nil
	case !given("total-epsilon"):
		return nil, cli.Usagef("missing flag --total-epsilon: a budget needs it and --total-delta")
	case !given("total-delta"):
		return nil, cli.Usagef("missing flag --total-delta: a budget needs it and --total-epsilon")
	}
	err := b.Budget.Check()
	var field *invalid.FieldError
	if errors.As(err, &field) { // names the key of verifier.yaml
		err = invalid.Field(strings.ReplaceAll(field.Field, "_", "-"), field.Got, field.Want)
	}
	return &b.Budget, cli.Usage(err)
}
