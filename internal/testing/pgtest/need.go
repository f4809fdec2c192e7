//go:build unix

package pgtest

// Need skips a test if PostgreSQL is not installed. With the build tag postgres, which make test sets, such a test
// fails instead.
func Need(t interface {
	Helper()
	Skipf(format string, args ...any)
}) {
	t.Helper()
	if _, err := findPrograms(); err != nil && !required {
		t.Skipf("left out, as PostgreSQL is not installed; -tags postgres fails instead: %v", err)
	}
}
