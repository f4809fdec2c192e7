//go:build nopostgres

package store

import (
	"context"
	"errors"
)

// A program built with the tag nopostgres, such as the one in the npm package, supports SQLite only. It is one megabyte
// smaller.

var errNoPostgres = errors.New("this program has no PostgreSQL: use sqlite:PATH, or a released relay")

func openPostgres(string, *Vault) (*Store, error) { return nil, errNoPostgres }

func readPostgres(string) (*Store, error) { return nil, errNoPostgres }

func checkPostgres(context.Context, string) error { return errNoPostgres }

func isPostgresError(error) bool { return false }
