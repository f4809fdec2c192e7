package vectormean

import (
	"math"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// defaultKashin is the default bound κ on the coefficients. With N ≥ 2d and d above a few, frames are random enough:
// every vector tried has a representation within this κ.
var defaultKashin = randomizer.NewRational(11, 5)

// chooseFrame returns the parameters kashin and seed, as the task gives them or chosen here. It takes the first of 16
// seeds for which a family of test vectors, among them the hardest known, have representations within κ. It tries κ of
// 1, 3/2, 7/4 and 2 for small d, then 11/5 and up.
func chooseFrame(t *task.Task) []task.Param {
	kashin, hasKashin := t.Param("kashin")
	seed, hasSeed := t.Param("seed")
	d := int(min(t.Input.Bins, maxDim))
	if !hasKashin {
		kashin = defaultKashin
		for _, k := range levels(d) {
			first, last := uint64(1), uint64(16)
			if hasSeed {
				first, last = uint64(seed.Num), uint64(seed.Num)
			}
			for s := first; s <= last; s++ {
				if newFrame(d, s).holds(k.Float64()) {
					return []task.Param{{Key: "kashin", Value: k}, protocols.Whole("seed", s)}
				}
			}
		}
	}
	if !hasSeed {
		seed = randomizer.NewRational(1, 1)
	}
	return []task.Param{{Key: "kashin", Value: kashin}, {Key: "seed", Value: seed}}
}

// levels returns the κ to try, in rising order. It starts at 11/5 unless d is small, because below that a family of
// test vectors says too little about all vectors.
func levels(d int) (out []randomizer.Rational) {
	if d <= 8 {
		out = append(out, randomizer.NewRational(1, 1), randomizer.NewRational(3, 2), randomizer.NewRational(7, 4),
			randomizer.NewRational(2, 1))
	}
	return append(out, defaultKashin, randomizer.NewRational(12, 5), randomizer.NewRational(13, 5),
		randomizer.NewRational(3, 1), randomizer.NewRational(4, 1))
}

// holds reports whether a family of test vectors has representations within kashin. The family consists of four kinds:
// coordinate axes; Uᵀs for s with few entries ±1; Uᵀs for s with up to half of the entries ±1, whose coefficients stand
// out most; and sums of random signs. A fixed generator draws all of them.
func (f *frame) holds(kashin float64) bool {
	if kashin > math.Sqrt(float64(f.size)) {
		return false
	}
	bound, d, state := kashin/math.Sqrt(float64(f.size)), len(f.columns), uint64(0)
	next := func() uint64 {
		state += 0x9e3779b97f4a7c15
		return mix(state)
	}
	trials := 12 + min(32_000/d, 2000)
	for trial := range trials {
		x := make([]float64, d)
		switch trial % 4 {
		case 0:
			x[int(next()%uint64(d))] = 1
		case 1, 2:
			s := make([]float64, f.size)
			entries := 1 + trial/4%3
			if trial%4 == 2 {
				entries = 1 + int(next()%uint64(f.size/2))
			}
			for range entries {
				s[int(next()%uint64(f.size))] = 1 - 2*float64(next()>>63)
			}
			x = f.synthesize(s)
		case 3:
			for l := range x {
				for range 1 + trial/4%4 {
					x[l] += 1 - 2*float64(next()>>63)
				}
			}
		}
		norm := 0.0
		for _, v := range x {
			norm += v * v
		}
		if norm == 0 {
			continue
		}
		for l := range x {
			x[l] /= math.Sqrt(norm)
		}
		if a, _ := f.represent(x, bound); largest(a) > bound*(1+1e-12) {
			return false
		}
	}
	return true
}
