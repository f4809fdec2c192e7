//go:build ignore

package main

import (
	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
)

// groups writes the (ε, δ) of a person who reports k times. Numbers have ten digits, rounded up, so that every machine
// writes the same bytes.
func groups() {
	var all []any
	for _, eps := range []float64{0, 1e-9, .1, .5, 1, 2, 5.25, 30} {
		for _, k := range []uint64{1, 2, 3, 5, 30} {
			groupEps, groupDelta, err := accountant.GroupPrivacy(eps, 1e-9, k)
			check(err)
			all = append(all, object{"epsilon": eps, "delta": 1e-9, "k": k,
				"groupEpsilon": decimal.Up(groupEps*(1-1e-12), 10), "groupDelta": decimal.Up(groupDelta*(1-1e-12), 10)})
		}
	}
	write("group", all)
}
