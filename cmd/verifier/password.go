package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/verifier/server"
)

// passwordOutput is the output of password.
type passwordOutput struct {
	File     string `json:"file"`
	Password string `json:"password,omitempty"` // Only a new random one.
}

func passwordCommand() *cobra.Command {
	var out string
	var stdin bool
	cmd := &cobra.Command{
		Use:   "password --out FILE [--stdin]",
		Short: "Make the password of the pages",
		Long: `Password makes a random password, prints it once, and writes its argon2id hash to a file of mode 0600 that must not
exist. With --stdin it reads the password from standard input instead, 12 to 1024 bytes in one line.

Name the file in verifier.yaml, as password_file. The pages of 'verifier serve' then ask for the password. To change
it, delete the file, make a new one and restart 'verifier serve', which also ends all sign-ins.`,
		Example: `  verifier password --out verifier.password`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made := passwordOutput{File: out}
			password, err := "", error(nil)
			if stdin {
				password, err = readPassword(cmd.InOrStdin())
			} else {
				password = server.NewPassword()
				made.Password = password
			}
			if err != nil {
				return err
			}
			if err := writeHash(out, password); err != nil {
				return err
			}
			return cli.Print(cmd, made, func(w io.Writer) error {
				if made.Password == "" {
					return nil
				}
				_, err := fmt.Fprintf(w, "password  %s\n", made.Password)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write; must not exist")
	cmd.Flags().BoolVar(&stdin, "stdin", false, "read the password from standard input")
	cli.Require(cmd, "out")
	return cmd
}

// readPassword reads a line of at most 4,096 bytes. [server.HashPassword] refuses a password that is too long, and
// names the range.
func readPassword(in io.Reader) (string, error) {
	line, err := io.ReadAll(io.LimitReader(in, 4096))
	if err != nil {
		return "", fmt.Errorf("couldn't read the password: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if strings.ContainsAny(password, "\r\n\x00") {
		return "", cli.Usagef("invalid password: want one line")
	}
	return password, nil
}

func writeHash(path, password string) error {
	line, err := server.HashPassword(password)
	if err != nil {
		return cli.FlagError(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("couldn't write the password's hash: %w", err)
	}
	f.Close()
	if err := durable.WriteFile(path, line, 0o600); err != nil {
		os.Remove(path)
		return fmt.Errorf("couldn't write the password's hash: %w", err)
	}
	return nil
}
