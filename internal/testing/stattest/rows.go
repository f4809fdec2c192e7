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

// CodeHash returns a hash of the Go files that match the patterns, without comments and spaces. Tests count only if
// their name is a pattern by itself. It changes if what the files compute may have changed.
func CodeHash(t testing.TB, patterns ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") && file != pattern {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sum.Write([]byte(filepath.Base(file)))
			writeTokens(sum.Write, text)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// writeTokens writes the tokens of a Go file.
func writeTokens(write func([]byte) (int, error), text []byte) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(text)), text, nil, 0) // 0: skips comments
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return
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
		write([]byte(literal + "\x00"))
	}
}
