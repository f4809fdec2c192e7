package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func TestValueType(t *testing.T) {
	rational := func(x int64) randomizer.Rational { return randomizer.NewRational(x, 1) }
	for _, c := range []struct {
		query       task.Query
		input       task.Input
		typ, values string
	}{
		{task.Count, task.Input{}, "0 | 1", "1 for yes, 0 for no"},
		{task.Mean, task.Input{Lo: rational(-5), Hi: rational(180), Clip: true}, "number",
			"a number from -5 to 180; a value outside counts as the nearer end"},
		{task.Sum, task.Input{Lo: rational(0), Hi: rational(9)}, "number", "a number from 0 to 9"},
		{task.Histogram, task.Input{Bins: 3, Labels: true}, "0 | 1 | 2", "a category"},
		{task.Histogram, task.Input{Bins: 65, Labels: true}, "number", "a category, a whole number from 0 to 64"},
		{task.Histogram, task.Input{Lo: rational(0), Hi: rational(9), Bins: 3}, "number", "a number from 0 to 9"},
		{task.Vector, task.Input{Lo: rational(0), Hi: rational(1), Bins: 7}, "Vector",
			"a list of 7 numbers, each from 0 to 1"},
		{task.VectorMean, task.Input{Bins: 7}, "Vector", "a list of 7 numbers"},
		{task.Strings, task.Input{Bins: 20}, "string", "a text, of which the first 20 bytes count"},
	} {
		typ, values := valueType(&task.Task{Query: c.query, Input: c.input})
		require.Equal(t, c.typ, typ, "%s", c.query)
		require.Equal(t, c.values, values, "%s", c.query)
	}
}
