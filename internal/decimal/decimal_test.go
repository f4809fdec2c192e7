package decimal_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/decimal"
)

func TestFormat(t *testing.T) {
	for want, got := range map[string]string{
		"1e-6": decimal.Format(1e-6, -1), "1.235e-9": decimal.Format(1.23456e-9, 4), "1e-10": decimal.Format(1e-10, -1),
		"-2.5e-7": decimal.Format(-2.5e-7, -1), "0.5": decimal.Format(0.5, 4), "+Inf": decimal.Format(math.Inf(1), 4),
	} {
		require.Equal(t, want, got)
	}
}

func TestUp(t *testing.T) {
	for want, got := range map[string]string{
		"1.000001e-6": decimal.Up(1e-6*(1+1e-12), 7), "1e-6": decimal.Up(1e-6, 7), "1.2346e-9": decimal.Up(1.23456e-9, 5),
		"1e-8": decimal.Up(9.9999999e-9, 4), "1.3": decimal.Up(1.21, 2), "0.000124": decimal.Up(1.231e-4, 3),
		"+Inf": decimal.Up(math.Inf(1), 4), "120": decimal.Up(119.2, 3),
	} {
		require.Equal(t, want, got)
	}
}
