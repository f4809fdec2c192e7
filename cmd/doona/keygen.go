package main

import (
	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
)

func keygenCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen --out FILE",
		Short: "Make an owner's signing key, or its recovery key",
		Long: `Keygen writes a new Ed25519 key to a file of mode 0600 that must not exist, and prints the public
half, "ed25519:…".

You sign tasks with an owner's key, and give its public half to pages, relays and verifiers. The recovery key
of a stream is a second key. It takes the stream over if the owner's key is lost or stolen, so keep it elsewhere
('task recover --help'). Relays, verifiers and issuers make their own keys: 'relay keygen', 'verifier keygen' and
'issuer keygen'.`,
		Example: `  doona keygen --out owner.key
  doona keygen --out recovery.key --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cli.MakeSign(cmd, out) },
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write; must not exist")
	cli.Require(cmd, "out")
	return cmd
}
