package cli

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// keygenOutput is the output of keygen: the public half of the new key or keys.
type keygenOutput struct {
	KeyID  string `json:"key_id"` // "sha256:…": the hash of the public key or key list, as in tasks
	Public string `json:"public"` // "ed25519:…", or the path of the signed key list
}

type keygenFlags struct {
	kind, out, sign string
	kem             task.KEM
	epochs          uint64
}

// Keygen returns the command with which a relay's or verifier's operator makes its keys.
func Keygen(program string) *cobra.Command {
	var f keygenFlags
	cmd := &cobra.Command{
		Use:   "keygen --kind hpke|sign --out FILE",
		Short: "Make a signing key, or HPKE keys for a task's epochs",
		Long: strings.ReplaceAll(`Keygen writes a new private key to a file of mode 0600 that must not exist, and prints the
public half.

  sign   one Ed25519 key, a party's identity. A task names its public half, "ed25519:…".
  hpke   one HPKE key per epoch of one task, and FILE.pub, the list of their public halves signed
         with --sign-key. Give FILE.pub to the task's owner; keep FILE secret. The PROGRAM erases
         each key when its epoch ends, so make new keys for every task.

'issuer keygen' makes an issuer's keys, 'doona keygen' an owner's.`, "PROGRAM", program),
		Example: strings.ReplaceAll(`  PROGRAM keygen --kind sign --out PROGRAM.sign
  PROGRAM keygen --kind hpke --sign-key PROGRAM.sign --epochs 30 --out mean.keys`, "PROGRAM", program),
		Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	set := cmd.Flags()
	set.StringVar(&f.kind, "kind", "", "sign or hpke")
	set.StringVar(&f.out, "out", "", "file to write; must not exist")
	set.StringVar(&f.sign, "sign-key", "", "hpke: file of the signing key that signs the list")
	set.Uint64Var(&f.epochs, "epochs", 1, "hpke: number of epochs of the task, 1 to 65536")
	set.StringVar((*string)(&f.kem), "kem", string(task.KEMX25519),
		"hpke: x25519, mlkem768x25519 or mlkem768, as in the task")
	Require(cmd, "kind", "out")
	return cmd
}

func (f *keygenFlags) run(cmd *cobra.Command) error {
	if f.kind == "sign" {
		if err := Refuse(cmd, "with --kind sign: one key signs for all epochs", "sign-key", "epochs",
			"kem"); err != nil {
			return err
		}
	}
	switch f.kind {
	case "sign":
		return MakeSign(cmd, f.out)
	case "hpke":
		made, err := f.makeHPKE(cmd)
		if err != nil {
			return err
		}
		return made.print(cmd)
	}
	return Usagef("invalid kind %q: want sign or hpke", f.kind)
}

// MakeSign writes a new Ed25519 key, which identifies a party, and prints its public half. The file must not exist yet.
func MakeSign(cmd *cobra.Command, file string) error {
	key, err := keyfile.NewSign(file)
	if err != nil {
		return err
	}
	public := key.Public().(ed25519.PublicKey)
	made := keygenOutput{taskfile.FormatHash(sha256.Sum256(public)), taskfile.FormatKey(task.SignKey(public))}
	return made.print(cmd)
}

func (g *keygenOutput) print(cmd *cobra.Command) error {
	return Print(cmd, g, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "key id  %s\npublic  %s\n", g.KeyID, g.Public)
		return err
	})
}

func (f *keygenFlags) makeHPKE(cmd *cobra.Command) (*keygenOutput, error) {
	if f.sign == "" {
		return nil, Usagef("missing flag --sign-key: each party signs its list of HPKE keys")
	}
	if f.epochs < 1 || f.epochs > 65536 {
		return nil, Usagef("invalid epochs %d: want 1 to 65536", f.epochs)
	}
	if _, err := onion.Overhead(f.kem); err != nil {
		return nil, Usage(err)
	}
	sign, err := LoadSign(cmd.ErrOrStderr(), f.sign)
	if err != nil {
		return nil, err
	}
	list, err := MakeEpochKeys(f.out, f.kem, f.epochs, sign)
	if err != nil {
		return nil, err
	}
	return &keygenOutput{taskfile.FormatHash(list.Hash()), PublicList(f.out)}, nil
}

// PublicList returns the file of the public list of a file of HPKE keys.
func PublicList(keys string) string { return keys + ".pub" }

// MakeEpochKeys writes new HPKE keys, one per epoch, to a file that must not exist, and their signed list beside it.
func MakeEpochKeys(out string, kem task.KEM, epochs uint64, sign ed25519.PrivateKey) (*onion.SignedKeyList, error) {
	if err := durable.MakeFolder(filepath.Dir(out), 0o700); err != nil { // may be new: a folder of successors
		return nil, fmt.Errorf("couldn't make the keys' folder: %w", err)
	}
	list, err := keyfile.NewHPKE(out, kem, epochs, sign)
	if err != nil {
		return nil, err
	}
	raw, err := list.Bytes()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(PublicList(out), raw, 0o644); err != nil {
		return nil, fmt.Errorf("couldn't write the key list: %w", err)
	}
	return list, nil
}
