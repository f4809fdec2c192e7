package cli

import (
	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/table"
)

// TableFlags are the names of the flags that [ReadsTables] adds.
var TableFlags = []string{"header", "delimiter", "decimal"}

// ReadsTables adds [TableFlags] to a command that reads tables. The caller adds flags for columns. Notes about tables
// go to standard error.
func ReadsTables(cmd *cobra.Command, f *table.Format) {
	flags := cmd.Flags()
	flags.Var(&f.Header, "header",
		"yes, no or auto: whether the first row names the columns; auto prints its choice")
	flags.Var(&f.Delimiter, "delimiter",
		`one character or tab, between fields (default: tab, ";", "|" or ",", guessed from the first lines)`)
	flags.Var(&f.Decimal, "decimal", ". or , before a number's fraction")
	f.Notes = display.Terminal(cmd.ErrOrStderr())
}
