package edge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

const owner = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

var address = "https://relay.example/v1/tasks/" + strings.Repeat("0a", 32)

// configWith returns a configuration of one task, x, with fields added.
func configWith(fields string) string {
	return fmt.Sprintf(`{"tasks": {"x": {"task": %q, "owner": %q, "maxEpsilon": 1%s}}}`, address, owner, fields)
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
		{configWith(`, "property": "weather"`), "tasks.x.property"},
		{configWith(`, "property": "country"`), "tasks.x.categories"},
		{configWith(`, "property": "country", "categories": ["AU", "AU"]`), "tasks.x.categories"},
		{configWith(`, "property": "country", "categories": [""]`), "tasks.x.categories"},
		{configWith(`, "property": "latency", "categories": ["1"]`), "tasks.x.categories"},
		{configWith(`, "categories": ["1"]`), "tasks.x.categories"},
		{configWith(`, "sample": 0.5`), "tasks.x.sample"},
		{configWith(`, "property": "latency", "sample": 0`), "tasks.x.sample"},
		{configWith(`, "property": "latency", "sample": 1.1`), "tasks.x.sample"},
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
		configWith(""),
		configWith(`, "maxDelta": 0.5, "property": "country", "categories": ["AU", "NZ"], "sample": 1`),
		configWith(`, "property": "latency", "sample": 0.01`),
		strings.Replace(configWith(""), `{"tasks"`, `{"delay": 0, "tasks"`, 1),
	} {
		_, err := ParseConfig([]byte(config))
		require.NoError(t, err, config)
	}
}

// A request's property always has a value of the task's domain.
func TestEveryObservationHasAValue(t *testing.T) {
	country := Task{Property: Country, Categories: []string{"AU", "NZ"}}
	cache := Task{Property: Cache, Categories: []string{"HIT", "MISS"}}
	status := Task{Property: Status, Categories: []string{"2xx", "5xx"}}
	latency := Task{Property: Latency}
	for _, c := range []struct {
		task *Task
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

func TestPropertiesMustFitTheTask(t *testing.T) {
	labels := func(bins uint64) *task.Task {
		return &task.Task{Query: task.Histogram, Input: task.Input{Bins: bins, Labels: true}}
	}
	reals := func(query task.Query, bins uint64, clip bool) *task.Task {
		return &task.Task{Query: query, Input: task.Input{Hi: randomizer.NewRational(1, 1), Bins: bins, Clip: clip}}
	}
	country := Task{Property: Country, Categories: []string{"AU", "NZ"}}
	latency := Task{Property: Latency}
	tokens := labels(3)
	tokens.Clients.Kind = task.ClientToken
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
}

func TestReadValue(t *testing.T) {
	for body, want := range map[string][]float64{
		`{"value": 1}`: {1}, ` {"value": -2.5e3} `: {-2500}, `{"value": [1, 2]}`: {1, 2}, `{"value": []}`: {},
	} {
		got, err := readValue(strings.NewReader(body))
		require.NoError(t, err, body)
		require.Equal(t, want, got)
	}
	for _, body := range []string{``, `{`, `1`, `{}`, `{"value": null}`, `{"value": "1"}`, `{"value": NaN}`,
		`{"value": 1e999}`,
		`{"value": [null]}`, `{"value": [[1]]}`, `{"value": {}}`, `{"value": true}`, `{"value": 1} 2`, `{"value": 1}]`,
		`{"value": 1}}`, `{"value": 1, "name": 2}`,
		`{"value": 1` + strings.Repeat(" ", maxBody) + `}`} {
		_, err := readValue(strings.NewReader(body))
		require.Error(t, err, body[:min(len(body), 30)])
	}
}

// A value the task does not allow is refused without being repeated: backends log what they get.
func TestProblemsDoNotRepeatTheValue(t *testing.T) {
	err := valueProblem(invalid.Field("value", "31.4159", "0 to 1"))
	require.ErrorContains(t, err, "0 to 1")
	require.NotContains(t, err.Error(), "31.4159")
}

func TestOwnOrigin(t *testing.T) {
	for origin, own := range map[string]bool{
		"": true, "https://site.example": true, "http://site.example": false, "https://evil.example": false,
		"https://site.example.evil.example": false, "null": false, "https://site.example:444": false, "%": false,
	} {
		req := httptest.NewRequest(http.MethodPost, "https://site.example/doona/x", nil)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		require.Equal(t, own, ownOrigin(req), origin)
	}
}

func TestPool(t *testing.T) {
	var p pool
	require.Nil(t, p.take(0))
	seen := map[byte]bool{}
	for i := range byte(poolSize) {
		require.True(t, p.lacks(3))
		p.put(3, []byte{i})
	}
	require.False(t, p.lacks(3))
	require.False(t, p.lacks(2), "tokens of the past")
	require.Nil(t, p.take(4))
	for range poolSize {
		seen[p.take(3)[0]] = true
	}
	require.Len(t, seen, poolSize, "each once")
	require.Nil(t, p.take(3))
	p.put(3, []byte{1})
	p.put(2, []byte{2})
	p.put(4, []byte{3})
	require.Nil(t, p.take(3))
	require.Equal(t, []byte{3}, p.take(4))
}
