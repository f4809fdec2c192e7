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
