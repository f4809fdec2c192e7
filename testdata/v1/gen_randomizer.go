//go:build ignore

package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// randomizerVectors writes random bytes and what each sampler draws from them. Integers are decimal strings, because
// JavaScript's numbers cannot hold 64 bits.
func randomizerVectors() {
	var stream []byte
	for i := range 16 {
		stream = append(stream, seed(fmt.Sprint("stream ", i))...)
	}
	var out []object
	add := func(v object, draw func(*randomizer.Source) uint64) {
		used := 0
		rest := stream
		src := randomizer.NewSourceFrom(func(p []byte) { copy(p, rest) })
		got := draw(src)
		for next := src.Uint64(); binary.BigEndian.Uint64(rest[used:]) != next; used += 8 {
		}
		v["bytes"], v["used"], v["result"] = hexOf(stream[:max(used, 8)]), used, strconv.FormatUint(got, 10)
		out = append(out, v)
		stream = append(stream[8:], stream[:8]...)
	}
	for _, n := range []uint64{1, 2, 3, 5, 8, 100, 1 << 32, 1<<32 + 1, 3 << 62, 1<<64 - 1} {
		for range 2 {
			add(object{"sampler": "below", "n": strconv.FormatUint(n, 10)},
				func(s *randomizer.Source) uint64 { return s.Below(n) })
		}
	}
	for _, p := range []string{"0", "1", "1/2", "1/3", "5/7", "4503599627370497/18014398509481984"} {
		r, err := randomizer.ParseRational("p", p)
		check(err)
		for range 2 {
			add(object{"sampler": "bernoulli", "p": p}, func(s *randomizer.Source) uint64 {
				if s.Bernoulli(r) {
					return 1
				}
				return 0
			})
		}
	}
	for _, c := range []struct {
		x, k  uint64
		gamma string
	}{{0, 2, "1/2"}, {3, 4, "1/4"}, {2, 300, "7/8"}, {1, 3, "1"}, {299, 300, "1/1024"}} {
		r, err := randomizer.ParseRational("gamma", c.gamma)
		check(err)
		add(object{"sampler": "randomizedResponse", "x": fmt.Sprint(c.x), "k": fmt.Sprint(c.k), "gamma": c.gamma},
			func(s *randomizer.Source) uint64 { return s.RandomizedResponse(c.x, c.k, r) })
	}
	for _, c := range []struct{ u, k uint64 }{
		{0, 1}, {randomizer.FixedOne, 65536}, {randomizer.FixedOne / 3, 1},
		{randomizer.FixedOne - 1, 1<<32 - 1}, {1, 1}, {randomizer.FixedOne / 3, 8},
	} {
		add(object{"sampler": "round", "u": fmt.Sprint(c.u), "k": fmt.Sprint(c.k)},
			func(s *randomizer.Source) uint64 { return s.Round(c.u, c.k) })
	}
	write("randomizer", append(out, noiseVectors()...))
}

// noiseVectors returns the vectors of the samplers of noise, and of the permutation.
func noiseVectors() []object {
	d := &drawer{stream: stream("noise", 128)}
	d.decays()
	d.sums()
	d.jumps()
	for _, n := range []uint64{0, 1, 2, 3, 5, 17, 300} {
		d.add(object{"sampler": "shuffle", "n": fmt.Sprint(n)},
			func(s *randomizer.Source) string { return shuffled(s, n) })
	}
	d.edges()
	return d.out
}

// edges adds draws on, or next to, a sampler's limits.
func (d *drawer) edges() {
	for _, c := range []struct{ u, draw uint64 }{{1 << 52, 1<<52 - 1}, {1 << 52, 1 << 52}, {1, 0}, {1, 1}} {
		d.stream = append(binary.BigEndian.AppendUint64(nil, c.draw), d.stream...)
		d.add(object{"sampler": "round", "u": fmt.Sprint(c.u), "k": "1"},
			func(s *randomizer.Source) string { return fmt.Sprint(s.Round(c.u, 1)) })
	}
	for _, draw := range []uint64{0, 1 << 63, 1} { // 64, 63 and 0 trailing zero bits
		d.stream = append(make([]byte, 8), d.stream...)
		binary.BigEndian.PutUint64(d.stream, draw)
		jumps := randomizer.NewJumps(rational("1"), 0)
		d.add(object{"sampler": "jump", "rate": "1", "max": "0", "candidates": "1"},
			func(s *randomizer.Source) string { return fmt.Sprint(s.Jump(jumps)) })
	}
}

// stream returns blocks of 32 bytes that depend only on the name.
func stream(name string, blocks int) (out []byte) {
	for i := range blocks {
		out = append(out, seed(fmt.Sprint("stream ", name, " ", i))...)
	}
	return out
}

// source returns a source that yields the given bytes, and then zeros.
func source(given []byte) *randomizer.Source {
	return randomizer.NewSourceFrom(func(p []byte) {
		clear(p)
		given = given[copy(p, given):]
	})
}

// drawer makes vectors of samplers, each from other bytes of the stream.
type drawer struct {
	stream []byte
	out    []object
}

// add makes one vector: one draw, with the bytes used.
func (d *drawer) add(v object, draw func(*randomizer.Source) string) {
	src := source(d.stream)
	v["result"] = draw(src)
	used := 0
	for next := src.Uint64(); binary.BigEndian.Uint64(d.stream[used:]) != next; used += 8 {
	}
	v["bytes"], v["used"] = hexOf(d.stream[:max(used, 8)]), used
	d.out = append(d.out, v)
	turn := max(used, 8)
	d.stream = append(d.stream[turn:], d.stream[:turn]...)
}

func rational(text string) randomizer.Rational {
	r, err := randomizer.ParseRational("vector", text)
	check(err)
	return r
}

// decays adds vectors of samplers with probabilities e^-x.
func (d *drawer) decays() {
	for _, g := range []string{"0", "1", "1/3", "7/8", "5/2", "40", "1/1099511627776"} {
		for range 2 {
			d.add(object{"sampler": "bernoulliExp", "g": g}, func(s *randomizer.Source) string {
				if s.BernoulliExp(rational(g)) {
					return "1"
				}
				return "0"
			})
		}
	}
	for _, rate := range []string{"1", "1/10", "3/7", "5/2", "1/1099511627776", "9/1048576"} {
		for range 2 {
			d.add(object{"sampler": "geometric", "rate": rate},
				func(s *randomizer.Source) string { return fmt.Sprint(s.Geometric(rational(rate))) })
			d.add(object{"sampler": "discreteLaplace", "rate": rate},
				func(s *randomizer.Source) string { return fmt.Sprint(s.DiscreteLaplace(rational(rate))) })
		}
	}
}

// sums adds vectors of Poisson, negative binomial and binomial samplers.
func (d *drawer) sums() {
	for _, lambda := range []string{"0", "1/1000", "1/2", "2/3", "1", "7/4", "10", "31/3"} {
		for range 2 {
			d.add(object{"sampler": "poisson", "lambda": lambda},
				func(s *randomizer.Source) string { return fmt.Sprint(s.Poisson(rational(lambda))) })
		}
	}
	for _, c := range []struct{ r, rate string }{
		{"0", "1"}, {"3", "1/2"}, {"1/5", "1/50"}, {"7/3", "1/4"}, {"1/4500", "1/10"}, {"5/2", "3"},
	} {
		for range 2 {
			d.add(object{"sampler": "negativeBinomial", "r": c.r, "rate": c.rate},
				func(s *randomizer.Source) string {
					return fmt.Sprint(s.NegativeBinomial(rational(c.r), rational(c.rate)))
				})
		}
	}
	for _, c := range []struct {
		n uint64
		p string
	}{
		{0, "1/2"}, {5, "0"}, {5, "1"}, {1, "1/2"}, {64, "1/2"}, {63, "1/4"}, {65, "3/4"}, {200, "5/16"},
		{1000, "4503599627370497/18014398509481984"},
	} {
		d.add(object{"sampler": "binomial", "n": fmt.Sprint(c.n), "p": c.p},
			func(s *randomizer.Source) string { return fmt.Sprint(s.Binomial(c.n, rational(c.p))) })
	}
}

// jumps adds vectors of one jump, and of several sources' jumps at once.
func (d *drawer) jumps() {
	for _, c := range []struct {
		rate string
		max  uint64
	}{{"2", 0}, {"1/100", 0}, {"1/100", 16}, {"3/1048576", 65535}, {"0", 5}, {"1/3", 1}, {"1", 3}} {
		jumps := randomizer.NewJumps(rational(c.rate), c.max)
		for range 4 {
			v := object{"sampler": "jump", "rate": c.rate, "max": fmt.Sprint(c.max)}
			v["candidates"] = fmt.Sprint(jumps.Candidates())
			d.add(v,
				func(s *randomizer.Source) string { return fmt.Sprint(s.Jump(jumps)) })
		}
	}
	for _, c := range []struct {
		den   uint64
		atoms []randomizer.Atom
		texts []object
	}{
		atoms(1, atom{3, "1/2", 0}, atom{0, "1", 0}, atom{2, "0", 4}),
		atoms(64*7, atom{640, "1/30", 0}, atom{64, "1/8", 0}, atom{320, "0", 3}),
		atoms(1<<40, atom{1, "1", 0}),
		atoms(5, atom{0, "1", 0}),
	} {
		all := randomizer.NewSuperposition(c.atoms, c.den)
		for range 2 {
			d.add(object{"sampler": "events", "atoms": c.texts, "den": fmt.Sprint(c.den)},
				func(s *randomizer.Source) string {
					var events []string
					s.Events(all, func(atom int, size uint64) { events = append(events, fmt.Sprint(atom, ":", size)) })
					return strings.Join(events, " ")
				})
		}
	}
}

// atom is one source of noise: its weight, rate and largest jump.
type atom struct {
	weight uint64
	rate   string
	max    uint64
}

// atoms returns a superposition's parameters, and their texts.
func atoms(den uint64, all ...atom) (out struct {
	den   uint64
	atoms []randomizer.Atom
	texts []object
}) {
	out.den = den
	for _, a := range all {
		out.atoms = append(out.atoms,
			randomizer.Atom{Weight: a.weight, Jumps: randomizer.NewJumps(rational(a.rate), a.max)})
		out.texts = append(out.texts, object{"weight": fmt.Sprint(a.weight), "rate": a.rate, "max": fmt.Sprint(a.max)})
	}
	return out
}

// shuffled returns the numbers 0 to n-1 in a client's random order.
func shuffled(s *randomizer.Source, n uint64) string {
	slots := make([][]byte, n)
	for i := range slots {
		slots[i] = strconv.AppendInt(nil, int64(i), 10)
	}
	t := &task.Task{Slots: task.Slots{Padding: task.PaddingFull, PerLane: n}}
	lanes, err := protocols.Pad(t, s, protocols.Messages{slots})
	check(err)
	var out []string
	for _, slot := range lanes[0] {
		out = append(out, string(slot.Body))
	}
	return strings.Join(out, " ")
}
