package decimal_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// numbers calls check with positive numbers: those at the ends of every size, powers of two and of ten with their
// neighbours, integers, and random ones of all sizes and of the sizes of messages.
func numbers(check func(x float64)) {
	around := func(x float64) {
		for _, y := range []float64{x, math.Nextafter(x, 0), math.Nextafter(x, math.Inf(1)), 1.5 * x} {
			if y > 0 && !math.IsInf(y, 1) {
				check(y)
			}
		}
	}
	for e := -1074; e < 1024; e++ {
		around(math.Ldexp(1, e))
	}
	for e := -323; e <= 308; e++ {
		around(math.Pow10(e))
	}
	around(math.MaxFloat64)
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 5000
	if stattest.Long {
		rounds = 1_000_000
	}
	for range rounds {
		check(math.Float64frombits(1 + random.Uint64N(math.Float64bits(math.MaxFloat64))))
		check(math.Exp(60*random.Float64() - 40))
		check(float64(random.Uint64() >> random.IntN(64)))
		check(math.Round(random.Float64()*1e6) / 1e4)
	}
}

func TestFormatIsStrconvs(t *testing.T) {
	want := func(x float64, digits int) string {
		return strings.Replace(strconv.FormatFloat(x, 'g', digits, 64), "e-0", "e-", 1)
	}
	i := 0
	numbers(func(x float64) {
		i++
		if got := decimal.Format(x, -1); got != want(x, -1) {
			// The numbers below a power of two are closer than those above. Strconv may then take a decimal above that
			// is not the nearest to it.
			back, err := strconv.ParseFloat(got, 64)
			require.NoError(t, err)
			require.Equal(t, x, back)
			fraction, _ := math.Frexp(x)
			require.Equal(t, 0.5, fraction, "%s instead of %s", got, want(x, -1))
			require.LessOrEqual(t, len(got), len(want(x, -1))+1)
		}
		digits := 1 + i%17
		require.Equal(t, want(x, digits), decimal.Format(x, digits))
		require.Equal(t, want(-x, digits), decimal.Format(-x, digits))
		if near, err := strconv.ParseFloat(want(x, digits), 64); err == nil { // It may round to infinity.
			require.Equal(t, -near, decimal.Near(-x, digits))
		}
	})
	for _, x := range []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.Equal(t, want(x, -1), decimal.Format(x, -1))
		require.Equal(t, want(x, 3), decimal.Format(x, 3))
	}
}

func TestParseIsStrconvs(t *testing.T) {
	equal := func(text string) {
		want, err := strconv.ParseFloat(text, 64)
		got, ok := decimal.Parse(text)
		require.Equal(t, err == nil, ok, text)
		if ok {
			require.Equal(t, math.Float64bits(want), math.Float64bits(got), text)
		}
	}
	i := 0
	numbers(func(x float64) {
		i++
		equal(strings.Replace(strconv.FormatFloat(x, 'e', i%25, 64), "e+", "e", 1))
		if x < 1e20 && x > 1e-20 {
			equal(strconv.FormatFloat(x, 'f', i%40, 64))
		}
		if i%20 == 0 && x > 1e-300 && x < 1e300 { // the middle between two numbers, exactly
			middle := new(big.Float).SetPrec(200).Add(big.NewFloat(x), big.NewFloat(math.Nextafter(x, math.Inf(1))))
			equal(strings.Replace(middle.Quo(middle, big.NewFloat(2)).Text('e', 1100), "e+", "e", 1))
		}
	})
	for _, text := range []string{"9007199254740993", "9007199254740995", "9007199254740992.9999999999999999", "0", "00.00",
		"2.4703282292062327e-324", "2.4703282292062328e-324", "1.7976931348623158e308", "1.7976931348623159e308",
		"1e400", "1e-400", "1e99999999999999999999", "1e-99999999999999999999", "0e99999999999999999999",
		"0.00000000000000000000001", "2.2250738585072011e-308", "2.2250738585072014e-308", "000001e-5"} {
		equal(text)
	}
	for _, text := range []string{"", ".", "1.", ".5", "1e", "1e-", "1e+5", "+1", "-1", "0x1p-2", "inf", "NaN", "1_0", "1e5.0",
		" 1", "1 ", "1e5e5", "1.2.3", "١"} {
		_, ok := decimal.Parse(text)
		require.False(t, ok, text)
	}
}
