// Package randomizer draws the random decisions of every local randomizer exactly.
//
// Everything between the byte source and a message is integer or exact rational arithmetic. No floating-point number
// decides an outcome, so the probabilities are exactly those in the privacy proofs (I. Mironov, "On Significance of
// the Least Significant Bits for Differential Privacy", CCS 2012).
//
// A [Source] yields uniform bytes. Its methods are samplers: [Source.Below], [Source.Bernoulli],
// [Source.RandomizedResponse], [Source.Round]; of noise [Source.BernoulliExp], [Source.Geometric],
// [Source.DiscreteLaplace], [Source.Poisson], [Source.NegativeBinomial]; and of the noise of many atoms at once
// [Source.Events]. Each states its distribution and the randomness it consumes, in 8-byte draws. So a second
// implementation that reads the same bytes decides the same.
package randomizer
