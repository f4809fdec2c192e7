package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
)

// textKind is a kind of text that two operators send each other. Such a text is one line of words: its kind, fields
// NAME=VALUE in a fixed order, and a check that finds changed characters. Nothing in it is secret. Whoever changes a
// text can make its check again, so people compare the fingerprint by another way.
type textKind struct {
	name, article string
	fields        []string
}

var (
	inviteText = textKind{"invite", "an invite", []string{"site", "owner", "relay", "tasks"}}
	answerText = textKind{"answer", "an answer", []string{"invite", "relay", "tasks"}}
)

const (
	textVersion = "1"
	textPrefix  = "doona-"
	maxText     = 2048 // bytes
	checkField  = "check"
)

func (k textKind) prefix() string { return textPrefix + k.name + "-" }

// format returns the text with these values of the fields.
func (k textKind) format(values ...string) string {
	words := []string{k.prefix() + textVersion}
	for i, name := range k.fields {
		words = append(words, name+"="+values[i])
	}
	return strings.Join(append(words, checkOf(words)), " ")
}

func checkOf(words []string) string {
	return checkField + "=" + digitsFor("check", strings.Join(words, " "))[:8]
}

// digitsFor returns the hash of a text for one purpose, in hexadecimal digits.
func digitsFor(purpose, text string) string {
	sum := sha256.Sum256([]byte("doona " + purpose + "\n" + text))
	return hex.EncodeToString(sum[:])
}

// parse returns the values of the fields. The words may be on several lines, as mail programs break lines.
func (k textKind) parse(text string) ([]string, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("the text of the %s has %d bytes: want at most %d", k.name, len(text), maxText)
	}
	for at, r := range text {
		if (r < ' ' || r > '~') && !strings.ContainsRune("\r\n\t", r) {
			return nil, fmt.Errorf("the text of the %s has the character %U at byte %d: want printable ASCII alone", k.name, r,
				at)
		}
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, fmt.Errorf("the text of the %s is empty: want one that begins with %s%s", k.name, k.prefix(), textVersion)
	}
	version, ok := strings.CutPrefix(words[0], k.prefix())
	switch {
	case !ok:
		return nil, fmt.Errorf("this is not %s: want a text that begins with %s%s", k.article, k.prefix(), textVersion)
	case version != textVersion:
		return nil, fmt.Errorf("the %s has version %q: want version %s, or a newer relay program", k.name, version,
			textVersion)
	}
	last := len(words) - 1
	if checkOf(words[:last]) != words[last] {
		return nil, fmt.Errorf("the %s was changed or cut on its way: its %s does not match: have it sent again", k.name,
			checkField)
	}
	if last != 1+len(k.fields) {
		return nil, fmt.Errorf("the %s has %d fields: want %s", k.name, last-1, strings.Join(k.fields, ", "))
	}
	values := make([]string, len(k.fields))
	for i, name := range k.fields {
		if values[i], ok = strings.CutPrefix(words[1+i], name+"="); !ok {
			return nil, fmt.Errorf("field %d of the %s is %q: want %s=…", i+1, k.name, words[1+i], name)
		}
	}
	return values, nil
}

// fingerprintOf returns six groups of four hexadecimal digits that two people can read to each other. They are 96 bits
// of the text's hash: whoever wants another text with the same fingerprint has to try 2^96.
func fingerprintOf(text string) string {
	var groups []string
	for group := range slices.Chunk([]byte(digitsFor("fingerprint", text))[:24], 4) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, " ")
}

// digitsOf returns a fingerprint as people type it, without spaces and hyphens and in lower case.
func digitsOf(fingerprint string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(fingerprint))
}

// readText returns the text that an argument is or names: the text, a file, or "-" for standard input.
func readText(cmd *cobra.Command, argument string) (string, error) {
	if strings.HasPrefix(argument, textPrefix) {
		return argument, nil
	}
	in := cmd.InOrStdin()
	if argument != "-" {
		file, err := os.Open(argument)
		if err != nil {
			return "", fmt.Errorf("couldn't read the text: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err != nil {
		return "", fmt.Errorf("couldn't read the text: %w", err)
	}
	return string(text), nil
}

// confirm returns an error unless the user confirms a fingerprint, by the flag --yes or on standard input.
func confirm(cmd *cobra.Command, fingerprint, yes string) error {
	if yes != "" {
		if digitsOf(yes) != digitsOf(fingerprint) {
			return cli.Usagef("invalid yes %q: want the fingerprint of this text, %s", yes, fingerprint)
		}
		return nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Did they read the same fingerprint to you by telephone? Type yes: ")
	var word string
	if _, err := fmt.Fscanln(cmd.InOrStdin(), &word); err != nil || word != "yes" {
		return fmt.Errorf("not confirmed, and nothing changed: type yes, or give --yes with the fingerprint")
	}
	return nil
}
