package rollback

import (
	"slices"
)

// Set is a set of numbers, as ascending ranges with gaps between them. A range includes both ends.
type Set [][2]uint64

// SetOf returns the set of the given numbers.
func SetOf(numbers ...uint64) (s Set) {
	for _, n := range numbers {
		s = s.Union(Set{{n, n}})
	}
	return s
}

// SetBelow returns the set of all numbers below n except those in except.
func SetBelow(n uint64, except ...uint64) (s Set) {
	slices.Sort(except)
	from := uint64(0)
	for _, skip := range append(except, n) {
		if skip > n {
			break
		}
		if skip > from {
			s = append(s, [2]uint64{from, skip - 1})
		}
		from = max(from, skip+1)
	}
	return s
}

// Has reports whether n is in the set.
func (s Set) Has(n uint64) bool {
	return slices.ContainsFunc(s, func(r [2]uint64) bool { return r[0] <= n && n <= r[1] })
}

// Union returns the numbers that are in s or other.
func (s Set) Union(other Set) (out Set) {
	all := slices.Concat(s, other)
	slices.SortFunc(all, func(a, b [2]uint64) int {
		if a[0] < b[0] {
			return -1
		}
		return 1
	})
	for _, r := range all {
		if last := len(out) - 1; last >= 0 && r[0] <= out[last][1]+1 {
			out[last][1] = max(out[last][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Beyond returns the lowest number that is in s but not in other, and whether there is one.
func (s Set) Beyond(other Set) (n uint64, some bool) {
	for _, r := range s {
		n := r[0]
		for _, o := range other {
			if o[0] <= n && n <= o[1] {
				n = o[1] + 1
			}
		}
		if n <= r[1] {
			return n, true
		}
	}
	return 0, false
}

func (s Set) valid() bool {
	for i, r := range s {
		if r[0] > r[1] || r[1] == 1<<64-1 || i > 0 && r[0] <= s[i-1][1]+1 {
			return false
		}
	}
	return true
}
