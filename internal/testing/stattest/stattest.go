// Package stattest is what tests of randomness and of privacy have in common: the exact loss of tiny
// mechanisms by enumeration, and whether an order is uniformly random.
package stattest
