package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/taskfile"
)

// keygenResult is the output of `keygen --kind token`, which the task's owner needs.
type keygenResult struct {
	KeyList   string `json:"key_list"`  // "sha256:…", as the task names the list
	Public    string `json:"public"`    // path of the file with the signed list
	Directory string `json:"directory"` // path of the file with the public keys
}

type keygenFlags struct {
	kind, out, sign string
	epochs          uint64
}

func keygenCommand() *cobra.Command {
	var f keygenFlags
	cmd := &cobra.Command{
		Use:   "keygen --kind sign|token --out FILE",
		Short: "Make a signing key, or the keys for a task's tokens, one for each epoch",
		Long: `Keygen writes private keys to FILE, of mode 0600, which must not exist.

  sign   one Ed25519 key, the issuer's identity. Keygen prints its public half, "ed25519:…". Do not use
         the key of a relay, the verifier or the owner: a party with unlimited tokens can surround one
         person with its own clients, and so learn that person's value.
  token  one 2048-bit RSA key for each epoch of a task. Keygen also writes two files beside FILE:

  FILE.pub        the list of the keys' ids, signed with --sign-key. Give it to the task's owner,
                  with the public half of that key, for 'doona task new --issuer'.
  FILE.directory  the public keys, for a first relay that cannot fetch them from the issuer

The issuer erases each token key when its epoch ends. So make new keys for every task.`,
		Example: `  issuer keygen --kind sign --out issuer.sign
  issuer keygen --kind token --sign-key issuer.sign --epochs 30 --out mean.keys`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	set := cmd.Flags()
	set.StringVar(&f.kind, "kind", "", "sign or token")
	set.StringVar(&f.out, "out", "", "file to write; must not exist")
	set.StringVar(&f.sign, "sign-key", "", "token: file of the issuer's signing key, which signs the list")
	set.Uint64Var(&f.epochs, "epochs", 0, "token: number of epochs of the task, 1 to 65536")
	cli.Require(cmd, "kind", "out")
	return cmd
}

func (f *keygenFlags) run(cmd *cobra.Command) error {
	switch f.kind {
	case "sign":
		why := "with --kind sign: one key signs for all epochs"
		if err := cli.Refuse(cmd, why, "sign-key", "epochs"); err != nil {
			return err
		}
		return cli.MakeSign(cmd, f.out)
	case "token":
		return f.makeTokens(cmd)
	}
	return cli.Usagef("invalid kind %q: want sign or token", f.kind)
}

func (f *keygenFlags) makeTokens(cmd *cobra.Command) error {
	switch {
	case f.sign == "":
		return cli.Usagef("missing flag --sign-key: the issuer signs the list of a task's keys")
	case !cmd.Flags().Changed("epochs"):
		return cli.Usagef("missing flag --epochs: every epoch of the task has a key")
	case f.epochs < 1 || f.epochs > 65536:
		return cli.Usagef("invalid epochs %d: want 1 to 65536", f.epochs)
	}
	key, err := cli.LoadSign(cmd.ErrOrStderr(), f.sign)
	if err != nil {
		return err
	}
	progress := cli.Progress("keys", int(f.epochs))
	list, err := issuer.NewKeys(f.out, f.epochs, key, func() { progress.Add(1) })
	if err != nil {
		return err
	}
	made := keygenResult{taskfile.FormatHash(list.Hash()), f.out + ".pub", f.out + ".directory"}
	return cli.Print(cmd, made, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "key list   %s\npublic     %s\ndirectory  %s\n", made.KeyList, made.Public,
			made.Directory)
		return err
	})
}
