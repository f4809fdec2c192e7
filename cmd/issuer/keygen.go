package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/taskfile"
)

// keygenResult is what keygen prints: what the task's owner needs.
type keygenResult struct {
	KeyList   string `json:"key_list"`  // "sha256:…", as the task names the list
	Public    string `json:"public"`    // file with the signed list
	Directory string `json:"directory"` // file with the public keys
}

func keygenCommand() *cobra.Command {
	var out, sign string
	var epochs uint64
	cmd := &cobra.Command{
		Use:   "keygen --sign-key FILE --epochs N --out FILE",
		Short: "Make the keys for a task's tokens, one for each epoch",
		Long: `Keygen writes one 2048-bit RSA key for each epoch of a task to FILE, of mode 0600, which must not
exist, and beside it

  FILE.pub        the list of the keys' ids, signed with --sign-key: give it to the task's owner,
                  with the public half of that key, for 'verifier task new --issuer'
  FILE.directory  the public keys, for a first relay that cannot fetch them from you

The issuer's identity is an Ed25519 key: 'relay keygen --kind sign' makes one. It must be no
relay's and neither the verifier's nor the owner's: whoever has tokens without end can surround
one person with clients of their own, and see what is left. The keys are erased one by one as the
epochs end, so make new ones for every task.`,
		Example: `  relay keygen --kind sign --out issuer.sign
  issuer keygen --sign-key issuer.sign --epochs 30 --out mean.keys`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if epochs < 1 || epochs > 65536 {
				return cli.Usagef("invalid epochs %d: want 1 to 65536", epochs)
			}
			key, err := keyfile.LoadSign(sign)
			if err != nil {
				return err
			}
			progress := cli.Progress("keys", int(epochs))
			list, err := issuer.NewKeys(out, epochs, key, func() { progress.Add(1) })
			if err != nil {
				return err
			}
			made := keygenResult{taskfile.FormatHash(list.Hash()), out + ".pub", out + ".directory"}
			return cli.Print(cmd, made, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "key list   %s\npublic     %s\ndirectory  %s\n", made.KeyList, made.Public,
					made.Directory)
				return err
			})
		},
	}
	set := cmd.Flags()
	set.StringVar(&out, "out", "", "file to write; must not exist")
	set.StringVar(&sign, "sign-key", "", "file of the issuer's signing key, which vouches for the list")
	set.Uint64Var(&epochs, "epochs", 0, "number of epochs of the task, 1 to 65536")
	cli.Require(cmd, "out", "sign-key", "epochs")
	return cmd
}
