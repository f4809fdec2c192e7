package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

// TestPageKnowsTheQueries: the table of queries in www/demo/queries.ts equals task.Queries.
func TestPageKnowsTheQueries(t *testing.T) {
	raw, err := os.ReadFile("../../www/demo/queries.ts")
	require.NoError(t, err)
	shapes := map[task.Shape]string{task.Scalar: "number", task.PerBin: "bins", task.PerVector: "vector",
		task.PerText: "texts"}
	var names []string
	want := "= {\n"
	for _, q := range task.Queries {
		names = append(names, "'"+string(q.Query)+"'")
		want += fmt.Sprintf("  %s: { shape: '%s', yesNo: %t, ball: %t },\n", q.Query, shapes[q.Shape], q.YesNo(),
			q.Ball())
	}
	require.Contains(t, string(raw), want+"};\n")
	require.Contains(t, string(raw), "type Query = "+strings.Join(names, " | ")+";\n")
}
