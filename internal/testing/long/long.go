// Package long says whether tests run in their long form: go test -tags long, as make test-full does.
//
// The rule: a whole test that is long stands in a file with //go:build long. A test that has a longer form of the same
// body reads [Enabled] for its sizes. No test skips itself for being long, so nothing is skipped in silence.
package long
