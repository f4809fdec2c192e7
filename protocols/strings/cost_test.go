package strings_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
)

// searchEnv is the environment variable with the folder of a setting and its aggregate. If it is set, this process only
// searches them.
const searchEnv = "DOONA_SEARCH"

func TestMain(m *testing.M) {
	if folder := os.Getenv(searchEnv); folder != "" {
		if err := searchAlone(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// searchAlone searches the batch that [setting.cost] wrote to a folder. It prints how many texts it found and its peak
// memory.
func searchAlone(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, "setting"))
	if err != nil {
		return err
	}
	var s setting
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	t, err := planner.Draft(query(s.Length, s.Users, s.PerClient*float64(s.Users), nil))
	if err != nil {
		return err
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	agg := m.Aggregate().(*strings.Aggregate)
	counts, err := os.ReadFile(filepath.Join(folder, "counts"))
	if err != nil {
		return err
	}
	agg.Counters(func(n *uint64) {
		v, size := binary.Uvarint(counts)
		*n, counts = v, counts[size:]
	})
	fmt.Println(len(agg.Find(.95).List))
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		fmt.Println(regexp.MustCompile(`VmHWM:\s+\d+`).FindString(string(status)))
	}
	return err
}

// cost is the measured cost of searching one batch.
type cost struct {
	Name    string  `json:"name"`
	Users   uint64  `json:"users"`
	Length  uint64  `json:"length"`
	Cells   uint64  `json:"cells"`
	Found   int     `json:"found"`
	Seconds float64 `json:"cpuSeconds"` // Of a process that reads the aggregate and searches it, on one core.
	PeakKB  int     `json:"peakKB"`     // Peak memory of that process in kB.
}

// TestFindCost checks that a process that searches a batch uses less than 300 MB. The long form covers batches of up to
// a million clients and the longest possible texts. It also limits the time to 10 s on one core.
func TestFindCost(t *testing.T) {
	rows := []setting{{Name: "a million", Users: 1e6, PerClient: .7, Share: .00025, Planted: 100, Length: 8, Heads: 5,
		Least: .8},
		{Name: "a million, 24 characters", Users: 1e6, PerClient: .9, Share: .0004, Planted: 100, Length: 24,
			Alphabet: alphabet40, Heads: 5, Prefixes: 30, Least: .5},
		{Name: "24 characters, 30 prefixes", Users: 1e5, PerClient: .9, Share: .004, Planted: 20, Length: 24,
			Alphabet: alphabet40, Heads: 5, Prefixes: 30, Least: .8},
		{Name: "64 characters", Users: 1e5, PerClient: .9, Share: .01, Planted: 20, Length: 64, Alphabet: alphabet40,
			Heads: 5, Prefixes: 30},
		{Name: "128 characters", Users: 1e5, PerClient: .9, Share: .01, Planted: 20, Length: 128,
			Alphabet: alphabet40, Heads: 5},
		{Name: "a million, 128 characters", Users: 1e6, PerClient: .9, Share: .01, Planted: 20, Length: 128,
			Alphabet: alphabet40, Heads: 5}}
	path, full := os.Getenv("DOONA_FIGURES"), stattest.Long
	if !full {
		rows = []setting{{Name: "10,000", Users: 1e4, PerClient: 1.1, Share: .03, Planted: 5, Length: 8, Least: .8}}
	}
	var out []cost
	for _, s := range rows {
		c := s.cost(t)
		t.Logf("%+v", c)
		require.GreaterOrEqual(t, float64(c.Found), s.Least*float64(s.Planted))
		require.Less(t, c.PeakKB, 300_000)
		if full {
			require.LessOrEqual(t, c.Seconds, 10.)
		}
		out = append(out, c)
	}
	if full && path != "" {
		text, err := json.MarshalIndent(out, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
}

// cost measures the search of one batch of a setting, in a separate process.
func (s setting) cost(t *testing.T) cost {
	t.Helper()
	folder := t.TempDir()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "setting"), text, 0o600))
	d := draft(t, s.Length, s.Users, s.PerClient*float64(s.Users), nil)
	agg, _, _ := s.batch(t, d, open(t, d), randomizer.NewSource())
	var counts []byte
	agg.Counters(func(n *uint64) { counts = binary.AppendUvarint(counts, *n) })
	require.NoError(t, os.WriteFile(filepath.Join(folder, "counts"), counts, 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	search := exec.Command(self)
	search.Env = append(os.Environ(), searchEnv+"="+folder, "GOMAXPROCS=1")
	printed, err := search.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	figures := regexp.MustCompile(`^(\d+)\nVmHWM:\s+(\d+)\n`).FindStringSubmatch(string(printed))
	require.Len(t, figures, 3, "%s", printed)
	c := cost{Name: s.Name, Users: s.Users, Length: s.Length, Cells: d.Noise.Cells,
		Seconds: (search.ProcessState.UserTime() + search.ProcessState.SystemTime()).Seconds()}
	c.Found, _ = strconv.Atoi(figures[1])
	c.PeakKB, _ = strconv.Atoi(figures[2])
	return c
}
