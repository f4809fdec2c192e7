package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
)

// mostEpochs is the largest number of epochs that a task may have.
const mostEpochs = 65536

// composeAmplify returns the ε of f.epochs releases together; solveAmplify does it for one release.
func composeAmplify(a accountant.Amplification, f amplifyFlags) (amplifyResult, error) {
	r := amplifyResult{
		Mechanism: f.mechanism, Bound: f.bound, Solve: f.solve,
		Epsilon0: a.Epsilon0, K: a.K, Users: a.Users, Delta: f.delta, Epochs: f.epochs,
	}
	law, err := lawOf(a, f)
	if err != nil {
		return r, err
	}
	local := float64(f.epochs) * a.Epsilon0
	r.Value, err = compose.Epsilon([]compose.Observation{law.Observation(f.epochs)}, f.delta)
	if err != nil { // The laws prove nothing at this δ. Pure local privacy holds.
		r.Value, r.Epsilon = local, local
		return r, nil
	}
	raw := r.Value
	r.Raw, r.Value, r.Amplified = &raw, math.Min(raw, local), raw < local
	r.Epsilon = r.Value
	return r, nil
}

// lawOf returns the privacy-loss law of one release, or an error if the mechanism and bound have none.
func lawOf(a accountant.Amplification, f amplifyFlags) (*compose.Law, error) {
	if f.epochs < 1 || f.epochs > mostEpochs {
		return nil, invalid.Field("epochs", strconv.FormatUint(f.epochs, 10), "1 to "+strconv.Itoa(mostEpochs))
	}
	if f.solve != "eps" {
		return nil, invalid.Field("solve", f.solve, "eps with several epochs")
	}
	_, eps0, err := a.Epsilon(f.delta) // Also validates a and δ.
	switch {
	case err != nil:
		return nil, err
	case a.Mechanism == accountant.KRR && krrRules[a.Bound] != "":
		gamma := float64(a.K) / (math.Expm1(a.Epsilon0) + float64(a.K)) * (1 - 1e-15)
		return compose.KRRLaw(krrRules[a.Bound], a.K, gamma, a.Users)
	case a.Mechanism == accountant.Laplace && a.Bound == accountant.ExactBits:
		curve := func(eps float64) float64 {
			delta, _, err := a.Delta(eps)
			if err != nil {
				return 1
			}
			return delta
		}
		return compose.LawOfSlow(curve, math.Min(a.Epsilon0, 4*eps0+compose.Top(curve))), nil
	}
	return nil, invalid.Field("bound", f.bound,
		"with several epochs, revealed, exact or others for krr, or exact for laplace: "+
			"other bounds have no law of a privacy loss")
}

// krrRules maps each bound of krr that has a privacy-loss law to the accountant's rule.
var krrRules = map[accountant.Bound]accountant.Rule{
	accountant.RevealedBits: accountant.Revealed, accountant.ExactBits: accountant.Exact,
	accountant.OthersBits: accountant.Others,
}

// plotEpochs writes a chart of ε against the number of releases. One line composes the releases, the other adds up
// their ε. Each release has an equal part of δ.
func plotEpochs(path string, r amplifyResult) error {
	a := accountant.Amplification{Mechanism: accountant.Mechanism(r.Mechanism), Bound: accountant.Bound(r.Bound),
		Epsilon0: r.Epsilon0, K: r.K, Users: r.Users}
	each := r.Delta / float64(r.Epochs)
	law, err := lawOf(a, amplifyFlags{solve: r.Solve, delta: each, epochs: r.Epochs, bound: r.Bound})
	if err != nil {
		return err
	}
	one, _, err := a.Epsilon(each)
	if err != nil {
		return err
	}
	composed, added := display.Line{Name: "composed"}, display.Line{Name: "added up"}
	const points = 13
	for i := range points {
		n := math.Round(math.Pow(float64(r.Epochs), float64(i)/(points-1)))
		eps, err := compose.Epsilon([]compose.Observation{law.Observation(uint64(n))}, n*each)
		if err != nil {
			return err
		}
		composed.Points = append(composed.Points, [2]float64{n, math.Min(eps, n*one)})
		added.Points = append(added.Points, [2]float64{n, n * one})
	}
	chart := display.Plot{LogX: true, LogY: true,
		Title: fmt.Sprintf("ε of releases together: %s, ε₀ = %.4g, δ = %s each", r.Mechanism, r.Epsilon0,
			decimal.Format(each, 4)),
		XLabel: "releases", YLabel: "ε", Lines: []display.Line{composed, added},
	}
	var svg strings.Builder
	chart.SVG(&svg)
	if err := os.WriteFile(path, []byte(svg.String()), 0o644); err != nil {
		return fmt.Errorf("couldn't write the chart: %w", err)
	}
	return nil
}
