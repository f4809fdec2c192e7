//go:build nopostgres

package store

import "errors"

// A program built with the tag nopostgres, such as the npm package's, is one megabyte smaller and supports SQLite only.

var errNoPostgres = errors.New("this program has no PostgreSQL: use sqlite:PATH, or a relay of a release")

func openPostgres(string, *Vault) (*Store, error) { return nil, errNoPostgres }

func readPostgres(string) (*Store, error) { return nil, errNoPostgres }

func isPostgresError(error) bool { return false }
