package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/wire/taskfile"
)

// textOutput is the output of invite --json.
type textOutput struct {
	Text        string `json:"text"`
	Fingerprint string `json:"fingerprint"`
}

func inviteCommand() *cobra.Command {
	var site, owner, first string
	var tasks int
	cmd := &cobra.Command{
		Use:   "invite --site NAME --owner KEY --relay URL,KEY --tasks N",
		Short: "Ask another operator to run the second relay",
		Long: `Invite prints a text for the operator of the second relay of a site's tasks. The site's owner or the operator
of the first relay makes it. It has the site's name, the owner's public key, the first relay and the wished
number of tasks. Nothing in it is secret, so any way will do to send it.

Invite also prints the text's fingerprint. Read it to the other operator by telephone, because somebody on the
way could send another text. The operator runs 'relay join', compares, and sends you an answer. Read that with
'relay check-answer'.`,
		Example: `  relay invite --site example.org --owner ed25519:OWNER --relay https://relay1.example,ed25519:KEY \
      --tasks 20 >invite.txt`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := newInvite(site, owner, first, strconv.Itoa(tasks))
			if err != nil {
				return cli.FlagError(err)
			}
			out := textOutput{i.text(), fingerprintOf(i.text())}
			return cli.Print(cmd, out, func(w io.Writer) error {
				fmt.Fprintf(cmd.ErrOrStderr(), "Send the text to the operator of the second relay. Its fingerprint:\n  %s\n",
					out.Fingerprint)
				_, err := fmt.Fprintln(w, out.Text)
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&site, "site", "", "name of the site: 1 to 64 letters, digits, dots, hyphens and underscores")
	flags.StringVar(&owner, "owner", "", "public key of the site's owner, ed25519:… ('doona keygen' prints it)")
	flags.StringVar(&first, "relay", "", "URL,ed25519:KEY of the first relay")
	flags.IntVar(&tasks, "tasks", 0, "number of tasks that the site wishes to have at a time, 1 to 1024")
	cli.Require(cmd, "site", "owner", "relay", "tasks")
	return cmd
}

// pairOutput is the output of check-answer --json.
type pairOutput struct {
	Relays      []string `json:"relays"` // as `doona task new --relay` takes them, in order
	Tasks       int      `json:"tasks"`
	Fingerprint string   `json:"fingerprint"`
}

func checkAnswerCommand() *cobra.Command {
	var yes string
	cmd := &cobra.Command{
		Use:   "check-answer INVITE ANSWER",
		Short: "Check the answer to an invite, and print both relays",
		Long: `Check-answer reads an invite and the answer that 'relay join' printed. Each is the text, a file, or - for
standard input. It shows the second relay and the answer's fingerprint. Compare that with its operator by
telephone.

Once you confirm, it prints the flags of both relays for 'doona task new' and 'doona set new'.`,
		Example: `  relay check-answer invite.txt answer.txt
  doona task new --query count --batch 1000 --epsilon 1 --delta 1e-6 --owner-key owner.key \
      $(relay check-answer invite.txt answer.txt) --verifier ed25519:KEY,v.keys.pub --out t.bundle`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(2)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return checkAnswer(cmd, args, yes) },
	}
	cmd.Flags().StringVar(&yes, "yes", "", "the answer's fingerprint, as its operator read it to you (default: ask)")
	return cmd
}

func checkAnswer(cmd *cobra.Command, args []string, yes string) error {
	var texts [2]string
	for at, argument := range args {
		var err error
		if texts[at], err = readText(cmd, argument); err != nil {
			return err
		}
	}
	i, err := parseInvite(texts[0])
	if err != nil {
		return err
	}
	a, err := parseAnswer(texts[1])
	if err != nil {
		return err
	}
	if a.invite != digitsOf(fingerprintOf(i.text())) {
		return fmt.Errorf("the answer is to another invite, with the fingerprint %q", a.invite)
	}
	if err := i.check(a.second); err != nil {
		return err
	}
	fingerprint := fingerprintOf(a.text())
	fmt.Fprintf(display.Terminal(cmd.ErrOrStderr()), `The second relay for %s:
  address      %s
  key          %s
  tasks        %d
  fingerprint  %s
`, i.site, a.second.URL, taskfile.FormatKey(a.second.SignKey), a.tasks, fingerprint)
	if err := confirm(cmd, fingerprint, yes); err != nil {
		return err
	}
	out := pairOutput{[]string{formatRelay(i.first), formatRelay(a.second)}, a.tasks, fingerprint}
	return cli.Print(cmd, out, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "--relay %s --relay %s\n", out.Relays[0], out.Relays[1])
		return err
	})
}
