// Package stattest is what tests of randomness and of privacy have in common: the exact loss of tiny mechanisms by
// enumeration, whether an order is uniformly random, and whether tests run in their long form, which draws more.
//
// The rule for long forms, go test -tags long, as make test-full does: a whole test that is long stands in a file with
// //go:build long. A test that has a longer form of the same body reads [Long] for its sizes. No test skips itself for
// being long, so nothing is skipped in silence.
package stattest
