// Package stattest helps tests of randomness and privacy. It computes the exact privacy loss of tiny mechanisms by
// enumeration. It tests whether an order is uniformly random. It says whether tests run in their long form, which draws
// more samples.
//
// Long forms run with go test -tags long, as in make test-full. A test that only exists in the long form is in a file
// with //go:build long. A test with a short and a long form reads [Long] for its sizes. No test skips itself because it
// is long, so nothing is skipped silently.
package stattest
