package registry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

var queries = []task.Query{task.Count, task.Sum, task.Mean, task.Histogram, task.Vector, task.VectorMean,
	task.Strings}

func names() (out []string) {
	for _, p := range registry.All() {
		out = append(out, p.ProtocolName())
	}
	return out
}

// TestTheTableHoldsEveryProtocol checks that every protocol package in a neighbouring folder has its row in the table.
func TestTheTableHoldsEveryProtocol(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	var folders []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\ntype Protocol struct") {
			folders = append(folders, filepath.Base(filepath.Dir(file)))
		}
	}
	require.ElementsMatch(t, folders, names(), "protocols/registry/table.go has the table")
}

// TestEveryProtocolHasTheSameFiles checks that every protocol has the standard files, and an Example with an output, so
// that it runs.
func TestEveryProtocolHasTheSameFiles(t *testing.T) {
	output := regexp.MustCompile(`(?s)\nfunc Example\(\) \{.*\n\t// (Unordered o|O)utput:\n`)
	for _, name := range names() {
		for _, file := range []string{name, "randomizer", "analyzer", "privacy", "calibrate", "simulation",
			"example_test"} {
			text, err := os.ReadFile(filepath.Join("..", name, file+".go"))
			require.NoError(t, err)
			if file == "example_test" {
				require.Regexp(t, output, string(text), "%s", name)
			}
		}
	}
}

func TestEveryQueryHasOneDefault(t *testing.T) {
	found := map[task.Query]string{}
	for _, p := range registry.All() {
		for _, query := range p.Row().Default {
			require.Contains(t, p.Row().Queries, query, p.ProtocolName())
			require.NotContains(t, found, query)
			found[query] = p.ProtocolName()
		}
	}
	require.Len(t, found, len(queries))
	for _, query := range queries {
		require.Contains(t, found, query)
	}
}

// TestEveryProtocolAnswersTheQueriesItSays checks that every protocol answers the queries in its row, and refuses the
// others with an error about the field "query".
func TestEveryProtocolAnswersTheQueriesItSays(t *testing.T) {
	for _, p := range registry.All() {
		for _, query := range queries {
			example := protocols.Case{Query: query, Users: 2000, Epsilon: 4}
			switch query {
			case task.Histogram:
				example.Bins = 2
			case task.Vector, task.VectorMean:
				example.Dim = 2
			case task.Strings:
				example.Length = 2
			}
			draft, err := planner.Draft(planner.Example(p.ProtocolName(), example, 1))
			if !slices.Contains(p.Row().Queries, query) {
				var field *invalid.FieldError
				require.ErrorAs(t, err, &field, "%s, %s", p.ProtocolName(), query)
				require.Equal(t, "query", field.Field, "%s, %s", p.ProtocolName(), query)
				continue
			}
			require.NoError(t, err, "%s, %s", p.ProtocolName(), query)
			require.Equal(t, p.ProtocolName(), draft.Protocol)
			require.NotEmpty(t, draft.Rule)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			require.NoError(t, m.CheckClaim(), "%s, %s", p.ProtocolName(), query)
		}
	}
}

// TestEveryTrialRuns runs each small example: a client randomizes, and attacks in the way that every protocol knows.
// The aggregate must accept all messages.
func TestEveryTrialRuns(t *testing.T) {
	src := randomizer.NewSource()
	for _, p := range registry.All() {
		require.NotEmpty(t, p.Row().Trials, p.ProtocolName())
		require.NotEmpty(t, p.Row().Costs, p.ProtocolName())
		var queries []task.Query
		for _, c := range p.Row().Trials {
			queries = append(queries, c.Query)
			draft, err := planner.Draft(planner.Example(p.ProtocolName(), c, 1))
			require.NoError(t, err, p.ProtocolName())
			m, err := registry.Open(draft)
			require.NoError(t, err, p.ProtocolName())
			simulated := protocols.CapabilitiesOf(m).Attack
			require.NotNil(t, simulated, "%s knows no attack", p.ProtocolName())
			own, err := m.Randomize(src, m.Worst().Value)
			require.NoError(t, err, p.ProtocolName())
			attack, err := simulated(src, protocols.AttackMax, 0, m.Worst().Value)
			require.NoError(t, err, p.ProtocolName())
			for _, lanes := range []protocols.Messages{own, attack} {
				agg := m.Aggregate()
				for lane, messages := range lanes {
					for _, message := range messages {
						require.NoError(t, agg.Add(lane, message), p.ProtocolName())
					}
				}
				agg.AddUsers(1)
				require.EqualValues(t, 1, agg.Reports(), p.ProtocolName())
			}
		}
		require.Subset(t, queries, p.Row().Queries, "%s: queries without a small example", p.ProtocolName())
	}
}

func TestUnknownNamesAreListed(t *testing.T) {
	_, err := registry.Open(&task.Task{Protocol: "none"})
	require.EqualError(t, err, `invalid protocol "none": want one of `+strings.Join(names(), " "))
	err = registry.Calibrate(&task.Task{Query: "median"})
	require.ErrorContains(t, err, `invalid query "median": want one of `)
	for _, query := range queries {
		require.ErrorContains(t, err, " "+string(query))
	}
}

// TestProtocolsAreReadable checks that a protocol's folder has few files and that no function is long.
func TestProtocolsAreReadable(t *testing.T) {
	const mostFiles, mostLines = 10, 60
	for _, name := range names() {
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		require.NoError(t, err)
		if name != "correlated" { // In correlated, test files count too.
			files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		}
		require.LessOrEqual(t, len(files), mostFiles, "%v", files)
	}
	functions := 0
	doctest.EachFile(t, "..", func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, filepath.Join("..", name), nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := positions.Position(f.End()).Line - positions.Position(f.Pos()).Line + 1
				require.LessOrEqual(t, lines, mostLines, "%s: %s", name, f.Name.Name)
				functions++
			}
		}
	})
	require.Greater(t, functions, 100)
}

// TestTrust checks that TrustOf names the relays that docs/proofs/slots.md and www/sdk/guarantee.ts name.
func TestTrust(t *testing.T) {
	for _, c := range []struct {
		protocol       string
		padding        task.Padding
		lanes, perLane uint64
		want           registry.Trust
	}{
		{"histogram", task.PaddingFull, 1, 1, registry.TrustAny},
		{"vectorsum", task.PaddingFull, 3, 1, registry.TrustAny},
		{"splitmix", task.PaddingFull, 1, 1, registry.TrustAny},
		{"splitmix", task.PaddingFull, 1, 8, registry.TrustWhole},
		{"rappor", task.PaddingFull, 1, 5, registry.TrustWhole},
		{"correlated", task.PaddingFull, 1, 300, registry.TrustFirst},
		{"correlated", task.PaddingNone, 1, 300, registry.TrustFirst},
		{"vectormean", task.PaddingFull, 32, 7, registry.TrustFirst},
		{"realsum", task.PaddingNone, 1, 1, registry.TrustFirst},
	} {
		got, err := registry.TrustOf(&task.Task{Protocol: c.protocol,
			Slots: task.Slots{Padding: c.padding, Lanes: c.lanes, PerLane: c.perLane}})
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
	}
	_, err := registry.TrustOf(&task.Task{Protocol: "none"})
	require.Error(t, err)
}
