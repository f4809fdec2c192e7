package house_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// number is an integer that JSON holds as text, because JavaScript's numbers cannot hold 64 bits.
type number uint64

func (n *number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 64)
	*n = number(v)
	return err
}

// rational is a fraction that JSON holds as text.
type rational randomizer.Rational

func (r *rational) UnmarshalText(text []byte) error {
	v, err := randomizer.ParseRational("vector", string(text))
	*r = rational(v)
	return err
}

// draw is one vector of randomizer.json. Each sampler uses some of the fields as arguments.
type draw struct {
	Sampler                      string
	N, X, K, U, Max, Den         number
	P, Gamma, G, Rate, Lambda, R rational
	Candidates                   number
	Atoms                        []struct {
		Weight, Max number
		Rate        rational
	}
	Bytes  hexBytes
	Used   int
	Result string
}

// samplers draw as a vector says and format the result as its file does.
var samplers = map[string]func(*randomizer.Source, *draw) string{
	"below": func(s *randomizer.Source, v *draw) string { return fmt.Sprint(s.Below(uint64(v.N))) },
	"bernoulli": func(s *randomizer.Source, v *draw) string {
		return bit(s.Bernoulli(randomizer.Rational(v.P)))
	},
	"randomizedResponse": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.RandomizedResponse(uint64(v.X), uint64(v.K), randomizer.Rational(v.Gamma)))
	},
	"round": func(s *randomizer.Source, v *draw) string { return fmt.Sprint(s.Round(uint64(v.U), uint64(v.K))) },
	"bernoulliExp": func(s *randomizer.Source, v *draw) string {
		return bit(s.BernoulliExp(randomizer.Rational(v.G)))
	},
	"geometric": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.Geometric(randomizer.Rational(v.Rate)))
	},
	"discreteLaplace": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.DiscreteLaplace(randomizer.Rational(v.Rate)))
	},
	"poisson": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.Poisson(randomizer.Rational(v.Lambda)))
	},
	"negativeBinomial": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.NegativeBinomial(randomizer.Rational(v.R), randomizer.Rational(v.Rate)))
	},
	"binomial": func(s *randomizer.Source, v *draw) string {
		return fmt.Sprint(s.Binomial(uint64(v.N), randomizer.Rational(v.P)))
	},
	"jump": func(s *randomizer.Source, v *draw) string {
		jumps := randomizer.NewJumps(randomizer.Rational(v.Rate), uint64(v.Max))
		if got := jumps.Candidates(); got != uint64(v.Candidates) {
			return fmt.Sprint(got, " candidates")
		}
		return fmt.Sprint(s.Jump(jumps))
	},
	"events":  events,
	"shuffle": shuffled,
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// events formats the jumps of a superposition as ATOM:SIZE.
func events(s *randomizer.Source, v *draw) string {
	var atoms []randomizer.Atom
	for _, a := range v.Atoms {
		jumps := randomizer.NewJumps(randomizer.Rational(a.Rate), uint64(a.Max))
		atoms = append(atoms, randomizer.Atom{Weight: uint64(a.Weight), Jumps: jumps})
	}
	var out []string
	s.Events(randomizer.NewSuperposition(atoms, uint64(v.Den)), func(atom int, size uint64) {
		out = append(out, fmt.Sprint(atom, ":", size))
	})
	return strings.Join(out, " ")
}

// shuffled returns the order in which a client sends slots 0 to n-1.
func shuffled(s *randomizer.Source, v *draw) string {
	slots := make([][]byte, v.N)
	for i := range slots {
		slots[i] = []byte(strconv.Itoa(i))
	}
	padding := &task.Task{Slots: task.Slots{Padding: task.PaddingFull, PerLane: uint64(v.N)}}
	lanes, err := protocols.Pad(padding, s, protocols.Messages{slots})
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, slot := range lanes[0] {
		out = append(out, string(slot.Body))
	}
	return strings.Join(out, " ")
}

// TestVectorsRandomizer: equal random bytes give equal draws, and each draw uses the number of bytes that the vector
// says.
func TestVectorsRandomizer(t *testing.T) {
	var vectors []draw
	readVectors(t, "randomizer", &vectors)
	seen := map[string]bool{}
	for i, v := range vectors {
		given := append(append([]byte{}, v.Bytes...), 1, 2, 3, 4, 5, 6, 7, 8) // bytes that mark the end
		read := 0
		src := randomizer.NewSourceFrom(func(p []byte) {
			clear(p)
			read += copy(p, given[min(read, len(given)):])
		})
		require.Contains(t, samplers, v.Sampler)
		require.Equal(t, v.Result, samplers[v.Sampler](src, &v), "%d: %+v", i, v)
		var next [8]byte
		src.Read(next[:])
		require.Equal(t, given[v.Used:v.Used+8], next[:], "draw %d used more or fewer random bytes than the vector says: %+v", i, v)
		seen[v.Sampler] = true
	}
	require.Len(t, seen, len(samplers))
}
