package clitest

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// extremes are the numbers that [Numbers] gives to every flag: small, large, and what is no number.
var extremes = []string{"0", "-0", "-1", "1", "NaN", "+Inf", "-Inf", "1e-309", "5e-324", "1e-100", "1e308",
	"2147483648", "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
	"18446744073709551615", "18446744073709551616"}

// durations are the extremes of flags that take a duration.
var durations = []string{"0", "0s", "-1s", "1ns", "1s", "NaN", "1e-309s", "1e308h", "2147483648s",
	"2562047h47m16.854775807s",
	"2562047h47m16.854775808s", "9223372036854775807ns"}

// Examples are command lines that a program answers.
type Examples struct {
	// Setup is a shell script. It runs in a new folder and writes the files that lines name as ../given/FILE.
	Setup string

	// Lines are short command lines that each succeed. Each command with numbers needs one. A flag that has an effect
	// only together with others needs a line that gives it. A line of a server ends with " # until REGEXP": what it
	// prints once it serves.
	Lines []string

	// Answers matches errors that answer the question, and do not refuse a number. Exit status 1 goes with them.
	Answers string

	// Work names flags whose number is how much work or time the user asks for. A large number is answered if the
	// program still works after a second of CPU time.
	Work []string

	// Slow matches lines that may take longer than the others, up to the end of [guard]. Say why. The short form
	// varies only single flags of these.
	Slow string
}

// Numbers gives tiny, huge and invalid numbers to every numeric flag of every command of root. The program must refuse
// each with an error that names the flag and says what is allowed, or answer. It must use at most 3 s of CPU time and
// 500 MB, and never panic. Numbers changes one flag of a line at a time, and two for pairs of privacy parameters. The
// short form takes one number for each flag, the long form all. A new flag needs no change of the
// test, unless it needs a line of its own; the long form fails if no line answers for a flag.
func Numbers(t *testing.T, root *cobra.Command, e Examples) {
	bench := newBench(t, e)
	for _, line := range e.Lines {
		if stattest.Long || !bench.slow.MatchString(line) {
			v := vary(line, nil)
			for _, word := range v.words {
				if flag, ok := strings.CutPrefix(word, "--"); ok {
					v.gives = append(v.gives, flag)
				}
			}
			bench.add(v)
		}
	}
	for _, cmd := range commands(root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { bench.varyFlag(t, cmd, f, e.Lines) })
	}
	for _, line := range e.Lines {
		if stattest.Long || !bench.slow.MatchString(line) {
			bench.varyPairs(line)
		}
	}
	bench.run(t)
}

// variation is a line with other values of some flags.
type variation struct {
	line  string   // The line without the change.
	words []string // The changed line.
	flags []string // The flags or keys that were changed.
	gives []string // Without a change: the flags or keys that the line gives.
	note  string   // What was changed in a file.
}

// varyFlag adds variations of a flag, if it is a number or contains some.
func (b *bench) varyFlag(t *testing.T, cmd *cobra.Command, f *pflag.Flag, lines []string) {
	numbers := numbersOf(f)
	if numbers == nil {
		return
	}
	path := cmd.CommandPath()
	var own, given []string
	for _, line := range lines {
		if !strings.HasPrefix(line+" ", path+" ") {
			continue
		}
		own = append(own, line)
		if slices.Contains(strings.Fields(line), "--"+f.Name) {
			given = append(given, line)
		}
	}
	require.NotEmpty(t, own, "%s has the number --%s, so it needs a line", path, f.Name)
	if given == nil {
		given = own
	}
	if !stattest.Long {
		given = given[:1]
	}
	for _, line := range given {
		values := numbers(valueOf(line, f))
		require.NotEmpty(t, values, "%s: no line gives --%s", path, f.Name)
		for _, value := range some(values, path+f.Name) {
			b.add(vary(line, []string{f.Name}, value))
		}
	}
}

// some returns one of the values, which the name chooses; in the long form all.
func some(values []string, name string) []string {
	if stattest.Long {
		return values
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	at := int(h.Sum32()>>1) % len(values)
	return values[at : at+1]
}

// until separates a server's line from a pattern.
const until = " # until "

// vary returns a line in which the flags have other values.
func vary(line string, flags []string, values ...string) variation {
	command, _, _ := strings.Cut(line, until)
	words := strings.Fields(command)
	for i, flag := range flags {
		if at := slices.Index(words, "--"+flag); at >= 0 {
			words[at+1] = values[i]
		} else {
			words = append(words, "--"+flag, values[i])
		}
	}
	return variation{line: line, words: words, flags: flags}
}

// private matches the flags whose numbers decide together what privacy costs.
var private = regexp.MustCompile(`^((total-)?(epsilon|delta)|eps0|users|batch)$`)

// varyPairs adds variations of each two privacy parameters of a line.
func (b *bench) varyPairs(line string) {
	var names []string
	for word := range strings.FieldsSeq(line) {
		if name, ok := strings.CutPrefix(word, "--"); ok && private.MatchString(name) {
			names = append(names, name)
		}
	}
	for i, one := range names {
		for _, two := range names[i+1:] {
			for _, value := range some(extremes, line+one) {
				for _, with := range some(extremes, line+two) {
					b.add(vary(line, []string{one, two}, value, with))
				}
			}
		}
	}
}

// template matches what stands for numbers in the usage of a flag of text, such as LO,HI or NAME=N.
var template = regexp.MustCompile(`\b(LO,HI|NAME=N|I/K|R/W|N=URL,KEY)(?:\W|$)`)

// numbersOf returns a function that returns the values to try for a flag, given a valid one; nil if it has no number.
func numbersOf(f *pflag.Flag) func(valid string) []string {
	switch kind := f.Value.Type(); {
	case kind == "duration":
		return func(string) []string { return durations }
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "float"):
		return func(string) []string { return extremes }
	}
	m := template.FindStringSubmatch(f.Usage)
	if m == nil {
		return nil
	}
	return func(valid string) (out []string) {
		for i, part := range split(m[1]) {
			for _, n := range extremes {
				if texts := split(valid); len(part) <= 2 && len(texts) > i {
					out = append(out, strings.Replace(valid, texts[i], n, 1))
				}
			}
		}
		return out
	}
}

// split returns the parts of a value or of its template.
func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",=/", r) })
}

// valueOf returns a flag's value in a line, or its default.
func valueOf(line string, f *pflag.Flag) string {
	words := strings.Fields(line)
	if at := slices.Index(words, "--"+f.Name); at >= 0 {
		return words[at+1]
	}
	return f.DefValue
}

func (v variation) String() string {
	return fmt.Sprint(strings.Join(v.words, " "), " (varied ", v.flags, " ", v.note, ")")
}
