package randomizer_test

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

func TestParseRational(t *testing.T) {
	for text, want := range map[string]randomizer.Rational{
		"0": {Num: 0, Den: 1}, "1": {Num: 1, Den: 1}, "-3": {Num: -3, Den: 1}, "9/10": {Num: 9, Den: 10},
		"-1/3":                  {Num: -1, Den: 3},
		"9223372036854775807":   {Num: math.MaxInt64, Den: 1},
		"1/9223372036854775807": {Num: 1, Den: math.MaxInt64},
		"-9223372036854775807/9223372036854775806": {Num: -math.MaxInt64, Den: math.MaxInt64 - 1},
	} {
		got, err := randomizer.ParseRational("gamma", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
	for _, text := range []string{
		"", " 1", "1 ", "+1", "-0", "00", "01", "1/1", "0/1", "0/5", "2/4", "3/-2", "1/0", "/2", "1/", "1/2/3", "1/02",
		"1/+2",
		"0.5", "1e3", "1_000", "0x1", "٣", "9223372036854775808", "-9223372036854775808", "1/9223372036854775808", "-",
		"-/2",
	} {
		_, err := randomizer.ParseRational("gamma", text)
		var field *invalid.FieldError
		require.True(t, errors.As(err, &field), "%q", text)
		require.Equal(t, "gamma", field.Field)
	}
}

// FuzzParseRational: a text that parses must be in lowest terms, and String must return the same text.
func FuzzParseRational(f *testing.F) {
	for _, seed := range []string{"0", "-1", "9/10", "2/4", "1/9223372036854775807", "-9223372036854775808", "+1/-2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := randomizer.ParseRational("x", text)
		if err != nil {
			return
		}
		require.Equal(t, text, r.String())
		require.Equal(t, r, randomizer.NewRational(r.Num, r.Den))
	})
}

func TestNewRational(t *testing.T) {
	require.Equal(t, randomizer.Rational{Num: -2, Den: 3}, randomizer.NewRational(-4, 6))
	require.Equal(t, randomizer.Rational{Num: 0, Den: 1}, randomizer.NewRational(0, 7))
	for _, bad := range []func(){
		func() { randomizer.NewRational(1, 0) },
		func() { randomizer.NewRational(1, 1<<63) },
		func() { randomizer.NewRational(math.MinInt64, 1) },
	} {
		require.Panics(t, bad)
	}
}

func TestRationalFromFloat(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 1: "1", -1: "-1", 0.9: "9/10", 0.1: "1/10", -2.5: "-5/2", 0.333: "333/1000", 1e9: "1000000000",
		-1e9:    "-1000000000",
		1.0 / 3: "1/3", 1e-9: "1/1000000000", 1e-300: "0", 0.000001: "1/1000000", 180: "180",
		123456.789: "123456789/1000",
	} {
		got, ok := randomizer.RationalFromFloat(x)
		require.True(t, ok, "%g", x)
		require.Equal(t, want, got.String(), "%g", x)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1.1e9, -1.1e9} {
		_, ok := randomizer.RationalFromFloat(x)
		require.False(t, ok, "%g", x)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		x := (rng.Float64() - 0.5) * math.Pow(10, float64(rng.IntN(19)-9))
		got, ok := randomizer.RationalFromFloat(x)
		require.True(t, ok)
		require.LessOrEqual(t, got.Den, uint64(1e9))
		require.InDelta(t, x, got.Float64(), 1e-9+math.Abs(x)*1e-15, "%g", x)
	}
}

func TestRationalFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 10_000 {
		r := randomizer.NewRational(rng.Int64()-1<<62, 1+rng.Uint64N(math.MaxInt64))
		exact, _ := new(big.Rat).SetFrac(big.NewInt(r.Num), new(big.Int).SetUint64(r.Den)).Float64()
		require.InEpsilon(t, exact, r.Float64(), 1.0/(1<<51))
		dyadic := randomizer.NewRational(rng.Int64N(1<<53), 1<<rng.IntN(63))
		exact, _ = new(big.Rat).SetFrac(big.NewInt(dyadic.Num), new(big.Int).SetUint64(dyadic.Den)).Float64()
		require.Equal(t, exact, dyadic.Float64())
	}
}

func TestMulFloor(t *testing.T) {
	require.Equal(t, uint64(4500), randomizer.NewRational(9, 10).MulFloor(5000))
	require.Equal(t, uint64(2), randomizer.NewRational(2, 3).MulFloor(4))
	rng := rand.New(rand.NewPCG(7, 8))
	for range 10_000 {
		den := 1 + rng.Uint64N(math.MaxInt64)
		r, n := randomizer.NewRational(int64(rng.Uint64N(den+1)), den), rng.Uint64()>>rng.IntN(64)
		want := new(big.Int).Mul(big.NewInt(r.Num), new(big.Int).SetUint64(n))
		want.Quo(want, new(big.Int).SetUint64(r.Den))
		require.Equal(t, want.Uint64(), r.MulFloor(n), "%s of %d", r, n)
	}
	require.Equal(t, uint64(math.MaxUint64), randomizer.NewRational(1, 1).MulFloor(math.MaxUint64))
	require.Zero(t, randomizer.NewRational(0, 1).MulFloor(math.MaxUint64))
}
