// Package randomizer draws the random decisions of every local randomizer exactly.
//
// Everything between the byte source and a message is integer or exact rational arithmetic:
// no floating-point number decides an outcome, so the probabilities are those of the privacy
// proofs and not of their roundings (I. Mironov, "On Significance of the Least Significant
// Bits for Differential Privacy", CCS 2012).
//
// A [Source] yields uniform bytes. [Source.Below], [Source.Bernoulli], [Source.RandomizedResponse],
// [Source.Round], the samplers of noise ([Source.BernoulliExp], [Source.Geometric],
// [Source.DiscreteLaplace], [Source.Poisson], [Source.NegativeBinomial]) and of the noise of many
// atoms at once ([Source.Events]) each state the distribution they draw from and the randomness
// they consume, in 8-byte draws, so that a second implementation fed the same bytes decides the
// same.
package randomizer
