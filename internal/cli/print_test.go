package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
)

// TestPrintIsPlain: text from outside must not control a terminal, neither printed as text nor as JSON.
func TestPrintIsPlain(t *testing.T) {
	const hostile = "a\u202eb\x1b[2J\u009b\n"
	for json, want := range map[string]string{"false": `a\u202eb\x1b[2J\u009b` + "\n",
		"true": `"a\u202eb\u001b[2J\u009b\n"` + "\n"} {
		var out bytes.Buffer
		cmd := cli.Prepare("x", "", &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Print(cmd, hostile, func(w io.Writer) error {
				_, err := fmt.Fprint(w, hostile)
				return err
			})
		}})
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--json=" + json})
		require.NoError(t, cmd.Execute())
		require.Equal(t, want, out.String())
	}
}
