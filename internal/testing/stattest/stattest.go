// Package stattest is shared by tests of randomness and privacy: it computes the exact loss of tiny mechanisms by
// enumeration, tests whether an order is uniformly random, and says whether tests run in their long form, which draws
// more.
//
// Long forms run with go test -tags long, as in make test-full. A test that is long as a whole is in a file with
// //go:build long. A test with a longer form of the same body reads [Long] for its sizes. No test skips itself for
// being long, so nothing is skipped silently.
package stattest
