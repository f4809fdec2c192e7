package edge

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

const owner = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

var address = "https://relay.example/v1/tasks/" + strings.Repeat("0a", 32)

// configWith returns a configuration of one task, x, with additional JSON fields.
func configWith(fields string) string {
	return fmt.Sprintf(`{"tasks": {"x": {"task": %q, "owner": %q, "maxEpsilon": 1%s}}}`, address, owner, fields)
}

// Each constant adds one source of values to a task's configuration.
const (
	page    = `, "source": "page"`
	backend = `, "source": "backend", "backendKey": "KEY"`
	country = `, "source": "request", "property": "country", "categories": ["AU"]`
	latency = `, "source": "request", "property": "latency"`
)

// categories returns the JSON fields of a property with categories.
func categories(property string, names ...string) string {
	return fmt.Sprintf(`, "source": "request", "property": %q, "categories": ["%s"]`, property, strings.Join(names, `", "`))
}

func TestConfigErrorsNameTheField(t *testing.T) {
	for _, c := range []struct{ config, field string }{
		{``, "DOONA"},
		{`nonsense`, "DOONA"},
		{`{"tasks": {}} {}`, "DOONA"},
		{`{"relays": []}`, "DOONA"},
		{`{}`, "tasks"},
		{`{"tasks": {}}`, "tasks"},
		{`{"tasks": {"Upper": null}}`, "tasks"},
		{`{"tasks": {"a/b": null}}`, "tasks"},
		{`{"tasks": {"x": null}}`, "tasks.x"},
		{`{"tasks": {"x": {}}}`, "tasks.x.task"},
		{`{"tasks": {"x": {"task": "https://relay.example"}}}`, "tasks.x.task"},
		{`{"tasks": {"x": {"task": "` + address + `?a"}}}`, "tasks.x.task"},
		{`{"tasks": {"x": {"task": "` + address + `"}}}`, "tasks.x.owner"},
		{`{"tasks": {"x": {"task": "` + address + `", "owner": "ed25519:short"}}}`, "tasks.x.owner"},
		{`{"tasks": {"x": {"task": "` + address + `", "owner": "` + owner + `"}}}`, "tasks.x.maxEpsilon"},
		{strings.Replace(configWith(""), `"maxEpsilon": 1`, `"maxEpsilon": "1"`, 1), "tasks.maxEpsilon"},
		{configWith(`, "maxDelta": -1`), "tasks.x.maxDelta"},
		{configWith(`, "maxDelta": 1.5`), "tasks.x.maxDelta"},
		{configWith(``), "tasks.x.source"},
		{configWith(`, "source": "program"`), "tasks.x.source"},
		{configWith(`, "property": "latency"`), "tasks.x.property"},
		{configWith(`, "source": "backend"`), "tasks.x.backendKey"},
		{configWith(backend + `, "issuerKey": "KEY"`), "tasks.x.backendKey"},
		{configWith(backend + `, "once": true`), "tasks.x.once"},
		{configWith(backend + `, "quota": 1`), "tasks.x.quota"},
		{configWith(backend + `, "origins": []`), "tasks.x.origins"},
		{configWith(page + `, "backendKey": "KEY"`), "tasks.x.backendKey"},
		{configWith(page + `, "once": true`), "tasks.x.once"},
		{configWith(page + `, "sample": 0.5`), "tasks.x.sample"},
		{configWith(page + `, "property": "latency"`), "tasks.x.property"},
		{configWith(page + `, "categories": ["1"]`), "tasks.x.categories"},
		{configWith(page + `, "quota": 0`), "tasks.x.quota"},
		{configWith(page + `, "quota": 65536`), "tasks.x.quota"},
		{configWith(page + `, "origins": ["null"]`), "tasks.x.origins"},
		{configWith(page + `, "origins": ["*"]`), "tasks.x.origins"},
		{configWith(page + `, "origins": ["https://*.example"]`), "tasks.x.origins"},
		{configWith(page + `, "origins": ["https://app.example/"]`), "tasks.x.origins"},
		{configWith(page + `, "origins": ["https://App.example"]`), "tasks.x.origins"},
		{configWith(page + `, "origins": ["app.example"]`), "tasks.x.origins"},
		{configWith(latency + `, "quota": 1`), "tasks.x.quota"},
		{configWith(`, "source": "request"`), "tasks.x.property"},
		{configWith(`, "source": "request", "property": "weather"`), "tasks.x.property"},
		{configWith(`, "source": "request", "property": "country"`), "tasks.x.categories"},
		{configWith(strings.Replace(country, `"AU"`, `"AU", "AU"`, 1)), "tasks.x.categories"},
		{configWith(strings.Replace(country, `"AU"`, `""`, 1)), "tasks.x.categories"},
		{configWith(latency + `, "categories": ["1"]`), "tasks.x.categories"},
		// Categories that no request can have
		{configWith(strings.Replace(country, `"AU"`, `"us"`, 1)), "tasks.x.categories"},
		{configWith(strings.Replace(country, `"AU"`, `"AU", "Germany"`, 1)), "tasks.x.categories"},
		{configWith(categories("status", "200", "404")), "tasks.x.categories"},
		{configWith(categories("status", "2xx", "6xx")), "tasks.x.categories"},
		{configWith(categories("cache", "hit")), "tasks.x.categories"},
		{configWith(latency + `, "sample": 0`), "tasks.x.sample"},
		{configWith(latency + `, "sample": 1.1`), "tasks.x.sample"},
		{strings.Replace(configWith(""), `{"tasks"`, `{"delay": 21, "tasks"`, 1), "delay"},
		{strings.Replace(configWith(""), `{"tasks"`, `{"delay": -1, "tasks"`, 1), "delay"},
	} {
		_, err := ParseConfig([]byte(c.config))
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field, c.config)
		require.Equal(t, c.field, field.Field, "%s: %v", c.config, err)
		require.NotEmpty(t, field.Want)
	}
}

func TestConfigThatIsGood(t *testing.T) {
	for _, config := range []string{
		configWith(page),
		configWith(page + `, "quota": 65535, "origins": ["https://app.example:8443", "capacitor://localhost"]`),
		configWith(backend + `, "issuerKey": "ISSUER"`),
		configWith(country + `, "maxDelta": 0.5, "sample": 1, "once": true`), configWith(latency + `, "sample": 0.01`),
		configWith(categories("country", "AU", "T1", "XX")), configWith(categories("status", "1xx", "5xx")),
		configWith(categories("cache", "HIT", "NONE")),
		strings.Replace(configWith(page), `{"tasks"`, `{"delay": 0, "tasks"`, 1),
	} {
		_, err := ParseConfig([]byte(config))
		require.NoError(t, err, config)
	}
}

// TestEveryObservationHasAValue: every observed property, even an unknown one, becomes a value in the task's domain.
func TestEveryObservationHasAValue(t *testing.T) {
	country := TaskConfig{Property: Country, Categories: []string{"AU", "NZ"}}
	cache := TaskConfig{Property: Cache, Categories: []string{"HIT", "MISS"}}
	status := TaskConfig{Property: Status, Categories: []string{"2xx", "5xx"}}
	latency := TaskConfig{Property: Latency}
	for _, c := range []struct {
		task *TaskConfig
		seen Observation
		want float64
	}{
		{&country, Observation{Country: "AU"}, 0}, {&country, Observation{Country: "NZ"}, 1},
		{&country, Observation{Country: "T1"}, 2}, {&country, Observation{}, 2},
		{&cache, Observation{Cache: "hit"}, 0}, {&cache, Observation{Cache: "DYNAMIC"}, 2}, {&cache, Observation{}, 2},
		{&status, Observation{Status: 204}, 0}, {&status, Observation{Status: 599}, 1},
		{&status, Observation{Status: 404}, 2}, {&status, Observation{}, 2}, {&status, Observation{Status: 999}, 2},
		{&latency, Observation{Latency: 12.5}, 12.5}, {&latency, Observation{Latency: -1}, 0},
	} {
		require.Equal(t, c.want, c.task.value(&c.seen), "%s of %+v", c.task.Property, c.seen)
	}
}

func TestTasksMustFitTheConfiguration(t *testing.T) {
	address := task.Clients{Kind: task.ClientAddress, Quota: 3}
	slots := task.Slots{Lanes: 1, PerLane: 1, MessageBytes: 8}
	labels := func(bins uint64) *task.Task {
		return &task.Task{Query: task.Histogram, Input: task.Input{Bins: bins, Labels: true}, Clients: address,
			KEM: task.KEMX25519, Slots: slots}
	}
	reals := func(query task.Query, bins uint64, clip bool) *task.Task {
		return &task.Task{Query: query, Input: task.Input{Hi: randomizer.NewRational(1, 1), Bins: bins, Clip: clip},
			Clients: address, KEM: task.KEMX25519, Slots: slots}
	}
	country := TaskConfig{Property: Country, Categories: []string{"AU", "NZ"}}
	latency := TaskConfig{Property: Latency}
	tokens := labels(3)
	tokens.Clients = task.Clients{Kind: task.ClientToken, Quota: 1}
	require.ErrorContains(t, country.fits("x", tokens), "x.issuerKey")
	withKey := country
	withKey.IssuerKey = "KEY"
	require.NoError(t, withKey.fits("x", tokens))
	require.ErrorContains(t, withKey.fits("x", labels(3)), "x.issuerKey")
	require.NoError(t, country.fits("x", labels(3)))
	for _, other := range []*task.Task{labels(2), labels(4), reals(task.Histogram, 3, true),
		reals(task.Mean, 0, true)} {
		require.ErrorContains(t, country.fits("x", other), "x.categories")
	}
	for _, good := range []*task.Task{reals(task.Mean, 0, true), reals(task.Sum, 0, true),
		reals(task.Histogram, 8, true)} {
		require.NoError(t, latency.fits("x", good))
	}
	for _, other := range []*task.Task{labels(3), reals(task.Mean, 0, false), reals(task.Vector, 4, true)} {
		require.ErrorContains(t, latency.fits("x", other), "x.property")
	}
	for quota, fits := range map[uint64]bool{1: true, 3: true, 4: false} {
		require.Equal(t, fits, (&TaskConfig{Source: FromPage, Quota: &quota}).fits("x", labels(2)) == nil, "quota %d", quota)
	}
	large := reals(task.Vector, 4, false)
	large.Slots = task.Slots{Lanes: 1, PerLane: 8000, MessageBytes: 1024}
	require.ErrorContains(t, (&TaskConfig{Source: FromPage}).fits("x", large), "x.task")
	large.Slots.PerLane = 7000
	require.NoError(t, (&TaskConfig{Source: FromPage}).fits("x", large))
}

func TestReadValue(t *testing.T) {
	const most = 1000
	readValue := func(body io.Reader, most int) ([]float64, error) {
		raw, err := readBody(body, most)
		if err != nil {
			return nil, err
		}
		return parseValue(raw)
	}
	for body, want := range map[string][]float64{
		`{"value": 1}`: {1}, ` {"value": -2.5e3} `: {-2500}, `{"value": [1, 2]}`: {1, 2}, `{"value": []}`: {},
		"\t{ \"value\" :[ -0.5E+1 ,\r\n1e-2,0] } ":         {-5, .01, 0},
		`{"value": 1` + strings.Repeat(" ", most-12) + `}`: {1},
	} {
		got, err := readValue(strings.NewReader(body), most)
		require.NoError(t, err, body)
		require.Equal(t, want, got)
	}
	for _, body := range []string{``, `{`, `1`, `{}`, `{"value": null}`, `{"value": "1"}`, `{"value": NaN}`,
		`{"value": 1e999}`, `{"Value": 1}`, `{"value": 1, "value": 2}`, `{"value": [1,]}`, `{"value": [1`, `{"value": 1`,
		`{"value": [null]}`, `{"value": [[1]]}`, `{"value": {}}`, `{"value": true}`, `{"value": 1} 2`, `{"value": 1}]`,
		`{"value": 1}}`, `{"value": 1, "name": 2}`, `{"value": {"value": 1}}`, `[1]`, `{"value": ]}`, `{"value": 0x1p-2}`, `{"value": 1_0}`, `{"value": +1}`, `{"value": 01}`, `{"value": .5}`,
		`{"value": 1.}`, `{"value": 1e}`, `{"value": Inf}`, `{"value": -}`, `{"value": [1 2]}`, `{"value": [,1]}`,
		`{"value": ` + strings.Repeat("[", 900)} {
		_, err := readValue(strings.NewReader(body), most)
		require.ErrorContains(t, err, "invalid-value", body)
	}
	_, err := readValue(strings.NewReader(`{"value": 1`+strings.Repeat(" ", most-11)+`}`), most)
	require.ErrorContains(t, err, "too-large")
}

// TestBodiesAreBoundedByTheDomain checks the size limit of a posted value, which grows with the numbers in it.
func TestBodiesAreBoundedByTheDomain(t *testing.T) {
	for _, c := range []struct {
		query task.Query
		bins  uint64
		most  int
	}{{task.Mean, 0, 96}, {task.Histogram, 300, 96}, {task.Vector, 100, 64 + 3200}, {task.VectorMean, 100, 64 + 3200},
		{task.Strings, 128, 64 + 32*maxText}, {task.Vector, task.Vector.Info().MostBins, maxBody}} {
		require.Equal(t, c.most, bodyBytes(&task.Task{Query: c.query, Input: task.Input{Bins: c.bins}}), c)
	}
	full, err := json.Marshal(map[string]any{"value": slices.Repeat([]float64{-math.Pi * 1e-300}, 100)})
	require.NoError(t, err)
	require.Less(t, len(full), 64+3200)
}

// TestProblemsDoNotRepeatTheValue: the problem for an invalid value does not contain the value, because backends log
// problems.
func TestProblemsDoNotRepeatTheValue(t *testing.T) {
	err := valueProblem(invalid.Field("value", "31.4159", "0 to 1"))
	require.ErrorContains(t, err, "0 to 1")
	require.NotContains(t, err.Error(), "31.4159")
}

// TestNetworksAreThoseOfRelays: the worker computes a visitor's network as relays and issuers do.
func TestNetworksAreThoseOfRelays(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "192.0.2.255", "192.0.3.1", "::ffff:192.0.2.7", "2001:db8:1::1",
		"2001:db8:1:2:3:4:5:6", "2001:0db8:0001::9", "2001:db8:2::1", "::1", "0:0:0:1::", "fe80::1%eth0"} {
		a, ok := service.ParseAddress(address)
		require.True(t, ok)
		require.Equal(t, service.Network(a).String(), networkOf(address))
	}
	for _, none := range []string{"", "192.0.2", "192.0.2.1, 192.0.2.2", "unknown"} {
		require.Empty(t, networkOf(none))
	}
}

// TestLoadIsBounded: an instance limits its jobs and their bytes. If the runtime ends a job's request without notice,
// the job must stop counting after jobEnds.
func TestLoadIsBounded(t *testing.T) {
	var l load
	var jobs []*job
	for range maxJobs {
		j, err := l.begin("")
		require.NoError(t, err)
		require.NoError(t, l.hold(j, maxHeld/maxJobs))
		jobs = append(jobs, j)
	}
	_, err := l.begin("")
	require.ErrorContains(t, err, "overloaded")
	require.ErrorContains(t, l.hold(jobs[0], 1), "overloaded")
	l.end(jobs[0])
	l.end(jobs[0])
	j, err := l.begin("")
	require.NoError(t, err)
	require.ErrorContains(t, l.hold(j, maxHeld/maxJobs+1), "overloaded")
	require.NoError(t, l.hold(j, maxHeld/maxJobs))
	_, err = l.begin("")
	require.ErrorContains(t, err, "overloaded")
	jobs[1].began = jobs[1].began.Add(-jobEnds)
	_, err = l.begin("")
	require.NoError(t, err)
	l.end(jobs[1])
	require.Len(t, l.jobs, maxJobs)
}

func TestPool(t *testing.T) {
	var p stock
	require.Nil(t, p.take(0))
	require.True(t, p.reserve(0))
	seen := map[byte]bool{}
	for range stockSize {
		require.True(t, p.reserve(3))
	}
	require.False(t, p.reserve(3), "reserved space counts as used")
	for i := range byte(stockSize) {
		p.put(3, []byte{i})
	}
	require.False(t, p.reserve(3))
	require.False(t, p.reserve(2), "no space for tokens of an earlier epoch")
	require.Nil(t, p.take(4))
	for range stockSize {
		seen[p.take(3)[0]] = true
	}
	require.Len(t, seen, stockSize, "every token must be taken once")
	require.Nil(t, p.take(3))
	require.True(t, p.reserve(3))
	p.put(3, nil)
	require.True(t, p.reserve(4))
	p.put(3, []byte{1})
	p.put(4, []byte{3})
	require.Nil(t, p.take(3))
	require.Equal(t, []byte{3}, p.take(4))
}

// TestShareOfANetwork: posts of one network without their bodies take at most an eighth of what other networks leave
// free, however many other jobs wait. Bodies that have arrived do not count.
func TestShareOfANetwork(t *testing.T) {
	for _, waiting := range []int{0, 100} {
		var l load
		for range waiting {
			_, err := l.begin("")
			require.NoError(t, err)
		}
		var first []*job
		for i := range maxJobs / networkShare {
			j, err := l.begin("a")
			require.NoError(t, err, "%d", i)
			first = append(first, j)
		}
		_, err := l.begin("a")
		require.ErrorContains(t, err, "overloaded")
		for range (maxJobs - maxJobs/networkShare) / networkShare {
			_, err := l.begin("b")
			require.NoError(t, err)
		}
		_, err = l.begin("b")
		require.ErrorContains(t, err, "overloaded")
		for _, j := range first {
			l.arrived(j)
		}
		_, err = l.begin("b")
		require.NoError(t, err)
	}
	var l load
	for range maxHeld / networkShare / maxBody {
		j, err := l.begin("a")
		require.NoError(t, err)
		require.NoError(t, l.hold(j, maxBody))
	}
	j, err := l.begin("a")
	require.NoError(t, err)
	require.ErrorContains(t, l.hold(j, maxBody), "overloaded")
	l.end(j)
	j, err = l.begin("b")
	require.NoError(t, err)
	require.NoError(t, l.hold(j, maxBody))
}
