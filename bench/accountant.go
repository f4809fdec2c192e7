package main

import (
	"context"
	"fmt"
	"time"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/protocols/correlated"
)

// calculations times the slowest computation of the accountant and the slowest parameter search, in seconds.
var calculations = Group{
	Names: []string{"accountant/krr-exact/n1e8", "calibrate/correlated/4096"},
	Run: func(context.Context, *Setup) ([]Row, error) {
		exact, err := timed(9, func() error {
			_, _, err := accountant.Amplification{Mechanism: accountant.KRR, Bound: accountant.ExactBits, Epsilon0: 1,
				K: 10, Users: 1e8}.Epsilon(1e-6)
			return err
		})
		if err != nil {
			return nil, err
		}
		search, err := timed(3, func() error {
			if _, _, ok := correlated.Search(4096, 1, 1e-6, 0.9); !ok {
				return fmt.Errorf("couldn't calibrate correlated at 4096")
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return []Row{
			newRow("accountant/krr-exact/n1e8", "s", lower, exact...),
			newRow("calibrate/correlated/4096", "s", lower, search...),
		}, nil
	},
}

// timed runs f several times and returns how long each took, in seconds.
func timed(runs int, f func() error) ([]float64, error) {
	var out []float64
	for range runs {
		began := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		out = append(out, time.Since(began).Seconds())
	}
	return out, nil
}
