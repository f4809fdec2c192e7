package stattest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rows are measurements that a long form keeps in a file, so that a stopped run can continue.
type Rows[T any] struct {
	Code string `json:"code"` // [CodeHash] of the code that was measured.
	Rows []T    `json:"rows"`
}

// ReadRows returns the measurements of a file, or none if the file is empty, does not exist or is about other code.
func ReadRows[T any](t testing.TB, path, code string) *Rows[T] {
	t.Helper()
	r := &Rows[T]{}
	if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, r), path)
	}
	if r.Code != code {
		if r.Code != "" {
			t.Logf("%s is about code %s: measuring code %s from the start", path, r.Code, code)
		}
		*r = Rows[T]{Code: code}
	}
	return r
}

// AllRows returns the measurements of a file, of whatever code.
func AllRows[T any](t testing.TB, path string) []T {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	r := Rows[T]{}
	require.NoError(t, json.Unmarshal(text, &r), path)
	return r.Rows
}

// Write writes the measurements to a file, unless path is empty. A stopped write leaves the previous file.
func (r *Rows[T]) Write(t testing.TB, path string) {
	t.Helper()
	if path == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".new", append(text, '\n'), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

// CodeHash returns a hash of the Go files that match the patterns. It leaves out comments, spaces, imports and what
// calls of package invalid say in errors. A pattern after a minus leaves out files. Tests count only if their name is a
// pattern by itself. The hash changes if what the files compute may have changed.
func CodeHash(t testing.TB, patterns ...string) string {
	t.Helper()
	sum, out := sha256.New(), map[string]bool{}
	for _, pattern := range patterns {
		pattern, without := strings.CutPrefix(pattern, "-")
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if without {
				out[file] = true
			}
			if out[file] || strings.HasSuffix(file, "_test.go") && file != pattern {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sum.Write([]byte(filepath.Base(file)))
			for _, word := range computing(tokens(text)) {
				sum.Write([]byte(word + "\x00"))
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// tokens returns the tokens of a Go file, without line ends.
func tokens(text []byte) (out []string) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(text)), text, nil, 0) // 0: skips comments
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return out
		}
		if kind == token.SEMICOLON && literal == "\n" {
			continue // A line end or none, as before a brace.
		}
		if literal == "" {
			literal = kind.String()
		}
		if kind == token.SEMICOLON { // one or the other at the end of a line
			literal = ";"
		}
		out = append(out, literal)
	}
}

// computing returns the tokens without imports in parentheses and without the arguments of calls of package invalid.
func computing(tokens []string) (out []string) {
	for i := 0; i < len(tokens); i++ {
		out = append(out, tokens[i])
		switch rest := tokens[i+1:]; {
		case tokens[i] == "import" && rest[0] == "(":
			i += closing(rest)
		case tokens[i] == "invalid" && rest[0] == ".":
			i += 2 + closing(rest[2:])
		}
	}
	return out
}

// closing returns how many tokens a bracket and what is in it are. The first token is the bracket.
func closing(tokens []string) int {
	open := 0
	for i, word := range tokens {
		switch word {
		case "(":
			open++
		case ")":
			if open--; open == 0 {
				return i + 1
			}
		}
	}
	return len(tokens)
}
