package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func taskRotateKeyCommand() *cobra.Command {
	var sign, to, out string
	cmd := &cobra.Command{
		Use:   "rotate-key FIRST --sign-key FILE --to KEY --out FILE",
		Short: "Replace a party's signing key in a stream",
		Long: `Rotate-key is for a relay, the verifier or the issuer of the stream whose first task is in FIRST. It writes a
signed statement to FILE: from the stream's next task on, KEY signs for this party. The party's current key,
in --sign-key, signs it.

First put the new key into the party's configuration as sign_key and the old key into old_sign_keys, and
restart the party. It signs for each task with the key that the task names. Then give FILE to the owner, who
passes it once to 'task renew' as --rotation. Pages need no change. Later tasks do not use the old key. Erase
it when the earlier tasks are over.

A lost key cannot be rotated. The owner can replace a relay that lost its key (task renew --replace), if the
first task allows that and pages list the new relay's key.`,
		Example: `  relay keygen --kind sign --out relay2.new
  doona task rotate-key may.bundle --sign-key relay2.sign --to ed25519:… --out relay2.rotation
  doona task renew may.bundle … --rotation relay2.rotation`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return writeRotation(cmd, args[0], sign, to, out) },
	}
	flags := cmd.Flags()
	flags.StringVar(&sign, "sign-key", "", "file of the party's key that the stream's newest task names")
	flags.StringVar(&to, "to", "", "key that signs for the party from the next task on, ed25519:…")
	flags.StringVar(&out, "out", "", "file to write")
	cli.Require(cmd, "sign-key", "to", "out")
	return cmd
}

func writeRotation(cmd *cobra.Command, first, sign, to, out string) error {
	root, err := loadRoot(first)
	if err != nil {
		return err
	}
	old, err := cli.LoadSign(os.Stderr, sign)
	if err != nil {
		return err
	}
	next, err := taskfile.ParseKey("to", to)
	if err != nil {
		return err
	}
	rotation := taskfile.FormatRotation(taskfile.NewRotation(root.ID, old, next))
	if err := writeNewJSON(out, rotation); err != nil {
		return err
	}
	return cli.Print(cmd, rotation, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "From the next task of stream %s on, %s signs instead of %s.\n", root.ID, rotation.New,
			rotation.Old)
		return err
	})
}

// writeNewJSON writes v as JSON to a new file. It returns an error if the file exists.
func writeNewJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("couldn't write the rotation: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// loadRotations reads the files of --rotation and checks that each is for the stream that begins with root.
func loadRotations(root *taskfile.Open, files []string) (rotations []task.Rotation, err error) {
	for _, file := range files {
		raw, err := taskfile.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("couldn't read the rotation: %w", err)
		}
		var form taskfile.Rotation
		if err := json.Unmarshal(raw, &form); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rotation, err := form.Parse()
		if err == nil {
			err = taskfile.CheckRotation(root.ID, rotation)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rotations = append(rotations, rotation)
	}
	return rotations, nil
}

// parseReplaced parses texts of the form N=URL,KEY: the relay at URL with KEY replaces relay N, counted from 1. The map
// that it returns counts relays from 0.
func parseReplaced(root *taskfile.Open, texts []string) (map[int]task.Party, error) {
	replaced := map[int]task.Party{}
	for _, text := range texts {
		number, party, _ := strings.Cut(text, "=")
		url, key, both := strings.Cut(party, ",")
		n, err := strconv.Atoi(number)
		if err != nil || !both || n < 1 || n > len(root.Relays) {
			return nil, cli.Usagef("invalid replace %q: want N=URL,KEY, with N from 1 to %d", text, len(root.Relays))
		}
		p := task.Party{URL: url}
		if p.SignKey, err = taskfile.ParseKey("replace", key); err != nil {
			return nil, err
		}
		replaced[n-1] = p
	}
	return replaced, nil
}
