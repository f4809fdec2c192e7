//go:build unix

package pgtest

// Need skips a test if PostgreSQL is not installed. With the build tag postgres, which make test sets, the test fails
// instead.
func Need(t interface {
	Helper()
	Skipf(format string, args ...any)
}) {
	t.Helper()
	if _, err := findPrograms(); err != nil && !required {
		t.Skipf("PostgreSQL is not installed (with -tags postgres this test fails): %v", err)
	}
}
