//go:build ignore

package main

import (
	"errors"
	"math/rand/v2"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
)

// ledgers writes which reports a privacy ledger admits, with clocks that jump, and what the ledger holds in the end.
// Prices are multiples of 1/8 and 2⁻²⁰, so all sums are exact.
func ledgers() {
	var all []any
	for i, b := range []shufflerclient.Budget{
		{Epsilon: 10, Delta: 1. / 1024, Days: 30}, {Epsilon: 4, Delta: 1, Days: 7},
		{Epsilon: 6, Delta: 1. / 4096, Days: 2.5}, {Epsilon: 100, Delta: 1. / 2, Days: 365},
	} {
		rng := rand.New(rand.NewChaCha8([32]byte{'l', byte(i)}))
		ledger, spends := &shufflerclient.Ledger{}, []any{}
		for day, leap := 0, 0; day < 100; day++ {
			if rng.IntN(25) == 0 {
				leap = rng.IntN(60) - 30
			}
			line := rng.IntN(8)
			length := []task.Length{86400, 43200, 7 * 86400, task.Month}[line%4]
			price := shufflerclient.Price{
				First:   compose.Spend{Epsilon: .25 * float64(1+line), Delta: 1. / (1 << 20)},
				Reports: uint64(2 + 5*line),
			}
			price.All = compose.Spend{Epsilon: 1 + float64(line), Delta: float64(price.Reports) / (1 << 20)}
			days := int64(day/2 + leap)
			if length == task.Month {
				days *= 10
			}
			start := length.Add(0, length.Between(0, 1_800_000_000+days*86400+int64(rng.IntN(86400))))
			limit := task.Cap{} // the last budget is large: there only caps refuse
			if i == 3 {
				limit = []task.Cap{{Reports: 1, Window: 4}, {Reports: 2, Window: 3}, {Reports: 3, Window: 10},
					{Reports: 3, Window: 12}}[line%4]
			}
			err := ledger.Spend(b, "line "+strconv.Itoa(line), price, start, task.Epochs{Length: length, Cap: limit})
			verdict := "admitted"
			if errors.Is(err, shufflerclient.ErrCapped) {
				verdict = "capped"
			} else if errors.Is(err, shufflerclient.ErrReported) {
				verdict = "reported"
			} else if errors.Is(err, shufflerclient.ErrBudget) {
				verdict = "budget"
			} else {
				check(err)
			}
			wish := object{"line": "line " + strconv.Itoa(line), "price": price, "start": start,
				"length": length, "verdict": verdict}
			if !limit.IsZero() {
				wish["cap"] = object{"reports": limit.Reports, "window": limit.Window}
			}
			spends = append(spends, wish)
		}
		all = append(all, object{"budget": object{"epsilon": b.Epsilon, "delta": b.Delta, "days": b.Days},
			"spends": spends, "lines": ledger.Lines})
	}
	write("ledger", all)
}
