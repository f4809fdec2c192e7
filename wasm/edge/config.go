package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Config is the JSON object in the worker's variable DOONA.
type Config struct {
	Tasks map[string]*TaskConfig `json:"tasks"` // By name, 1 to 64 of a-z 0-9 - _. At least one task.
	// The worker sends a report after a random delay of at most this many seconds, 0 to 20. Default 20.
	Delay *float64 `json:"delay"`
}

// TaskConfig says which task receives reports, and where their values come from.
type TaskConfig struct {
	URL        string  `json:"task"`       // URL of the task at its first relay: …/v1/tasks/ID. Required.
	Owner      string  `json:"owner"`      // The task owner's key, "ed25519:…". Required.
	MaxEpsilon float64 `json:"maxEpsilon"` // As in [shufflerclient.Options]. Required.
	MaxDelta   float64 `json:"maxDelta"`   // As in [shufflerclient.Options].
	Source     Source  `json:"source"`     // Required; no default suits every site.
	// Name of the secret that holds the issuer's API key. Only for tasks whose clients need tokens.
	IssuerKey string `json:"issuerKey"`

	// The fields for source page:
	Origins []string `json:"origins"` // Other origins whose pages may post: "https://app.example".
	Quota   *uint64  `json:"quota"`   // Reports per network and epoch, 1 to the task's quota. Default 1.

	// The field for source backend:
	BackendKey string `json:"backendKey"` // Name of the secret that the backend's posts carry. Required.

	// The fields for source request:
	Property Property `json:"property"` // Required.
	// For country, cache and status: Categories[i] is the task's category i. All other values become the last category,
	// len(Categories).
	Categories []string `json:"categories"`
	Sample     *float64 `json:"sample"` // Fraction of the requests that are reported, in (0, 1]. Default 1.
	Once       bool     `json:"once"`   // Report at most once per visitor's network and epoch.
}

// Source says where the values of a task come from.
type Source string

const (
	FromPage    Source = "page"    // The site's pages post values with header Origin; each network has a quota.
	FromBackend Source = "backend" // Programs that know a secret post values.
	FromRequest Source = "request" // The worker reads a property of each request that it passes to the site.
)

// Property is the property of passing requests that a task asks for.
type Property string

const (
	Country Property = "country" // The visitor's country by ISO 3166: "AU"; "" if unknown.
	Cache   Property = "cache"   // Header cf-cache-status of the site's answer: "HIT"; "" if absent.
	Status  Property = "status"  // Class of the site's answer: "2xx"; "" if there was no answer.
	Latency Property = "latency" // Milliseconds until the headers of the site's answer arrived.
)

// possibleCategories are the categories that requests can have, for each property with categories.
var possibleCategories = map[Property]struct {
	pattern *regexp.Regexp
	want    string
}{
	Country: {regexp.MustCompile(`^[A-Z][A-Z0-9]$`), `codes of ISO 3166 in upper case, such as "AU"; "T1" is Tor`},
	Cache:   {regexp.MustCompile(`^[A-Z]+$`), `values of cf-cache-status in upper case, such as "HIT"`},
	Status:  {regexp.MustCompile(`^[1-5]xx$`), `classes "1xx" to "5xx"`},
}

// defaultDelay and maxDelay are in seconds. The runtime lets work continue for 30 s after an answer. The 10 s beyond
// the longest delay are for retries.
const (
	defaultDelay = 20
	maxDelay     = 20
)

// maxQuota is the largest quota that any task may have, in reports per network and epoch.
const maxQuota = 65535

var (
	namePattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	// originPattern matches a page's origin as browsers write it: lower case, scheme and host without a path.
	originPattern = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#@*,\s"A-Z]+$`)
	// secretPattern matches a secret of 32 characters or more that fits in an HTTP header.
	secretPattern = regexp.MustCompile(`^[A-Za-z0-9+/=_.~-]{32,}$`)
	urlPattern    = regexp.MustCompile(`^https?://[^/?#]+(/[^?#]*)?` + strings.Replace(endpoint.TaskPath, "{task}",
		"[0-9a-f]{64}", 1) + `$`)
)

// ParseConfig parses and checks the value of the variable DOONA. Errors name the field.
func ParseConfig(in []byte) (*Config, error) {
	if len(in) == 0 {
		return nil, invalid.Field("DOONA", `""`, "a JSON object with tasks: set the variable in wrangler.jsonc")
	}
	decoder := json.NewDecoder(bytes.NewReader(in))
	decoder.DisallowUnknownFields()
	var c Config
	if err := decoder.Decode(&c); err != nil {
		return nil, decodingError(err)
	}
	if decoder.More() {
		return nil, invalid.Field("DOONA", "", "one JSON object and nothing after it")
	}
	if c.Delay != nil && !(*c.Delay >= 0 && *c.Delay <= maxDelay) {
		return nil, invalid.Field("delay", number(*c.Delay), fmt.Sprintf("seconds, 0 to %d", maxDelay))
	}
	if len(c.Tasks) == 0 {
		return nil, invalid.Field("tasks", "{}", "at least one task")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if !namePattern.MatchString(name) {
			return nil, invalid.Field("tasks", strconv.Quote(name), "names of 1 to 64 of a-z 0-9 - _")
		}
		if err := c.Tasks[name].validate("tasks." + name); err != nil {
			return nil, err
		}
	}
	return &c, c.validateSecrets()
}

// validateSecrets returns an error if a backend's secret is also an issuer's API key: the worker would send it to that
// issuer.
func (c *Config) validateSecrets() error {
	issuers := map[string]bool{}
	for _, t := range c.Tasks {
		issuers[t.IssuerKey] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		if key := c.Tasks[name].BackendKey; key != "" && issuers[key] {
			return invalid.Field("tasks."+name+".backendKey", strconv.Quote(key),
				"another secret: the worker sends this one to an issuer as the API key")
		}
	}
	return nil
}

// decodingError names the field that JSON could not decode, if the json package's error does.
func decodingError(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return invalid.Field(kind.Field, "of type "+kind.Value, "a "+kind.Type.String())
	}
	return invalid.Field("DOONA", strconv.Quote(err.Error()), "a JSON object of tasks and delay")
}

func (t *TaskConfig) validate(at string) error {
	if t == nil {
		return invalid.Field(at, "null", "an object")
	}
	if !urlPattern.MatchString(t.URL) {
		return invalid.Field(at+".task", strconv.Quote(t.URL),
			"the URL of a task at its first relay, https://…/v1/tasks/ and 64 hexadecimal digits")
	}
	if _, err := taskfile.ParseKey(at+".owner", t.Owner); err != nil {
		return err
	}
	if !(t.MaxEpsilon > 0) {
		return invalid.Field(at+".maxEpsilon", number(t.MaxEpsilon), "a number above 0")
	}
	if !(t.MaxDelta >= 0 && t.MaxDelta <= 1) {
		return invalid.Field(at+".maxDelta", number(t.MaxDelta), "a number in (0, 1]")
	}
	return t.validateSource(at)
}

func (t *TaskConfig) validateSource(at string) error {
	if err := t.validateFields(at); err != nil {
		return err
	}
	switch t.Source {
	case FromPage:
		return t.validatePage(at)
	case FromBackend:
		if t.BackendKey == "" {
			return invalid.Field(at+".backendKey", `""`, "the name of the secret that the backend's posts carry")
		}
		return nil
	case FromRequest:
		return t.validateProperty(at)
	}
	return invalid.Field(at+".source", strconv.Quote(string(t.Source)), "page, backend or request")
}

// validateFields returns an error if a set field has no effect with the task's source.
func (t *TaskConfig) validateFields(at string) error {
	for _, f := range []struct {
		name string
		set  bool
		of   Source
	}{
		{"origins", t.Origins != nil, FromPage}, {"quota", t.Quota != nil, FromPage},
		{"backendKey", t.BackendKey != "", FromBackend},
		{"property", t.Property != "", FromRequest}, {"categories", t.Categories != nil, FromRequest},
		{"sample", t.Sample != nil, FromRequest}, {"once", t.Once, FromRequest},
	} {
		if f.set && t.Source != f.of {
			return invalid.Field(at+"."+f.name, "with source "+strconv.Quote(string(t.Source)),
				"this field with source "+string(f.of)+" only")
		}
	}
	return nil
}

func (t *TaskConfig) validatePage(at string) error {
	for _, origin := range t.Origins {
		if !originPattern.MatchString(origin) {
			return invalid.Field(at+".origins", strconv.Quote(origin),
				"origins as browsers write them: https://app.example or https://app.example:8443")
		}
	}
	if t.Quota != nil && !(*t.Quota >= 1 && *t.Quota <= maxQuota) {
		return invalid.Field(at+".quota", strconv.FormatUint(*t.Quota, 10), "1 to 65535 reports per network and epoch")
	}
	return nil
}

func (t *TaskConfig) validateProperty(at string) error {
	if t.Sample != nil && !(*t.Sample > 0 && *t.Sample <= 1) {
		return invalid.Field(at+".sample", number(*t.Sample), "a number in (0, 1]")
	}
	switch t.Property {
	case Country, Cache, Status:
		if len(t.Categories) == 0 {
			return invalid.Field(at+".categories", "[]", "at least one; all other values form one more category")
		}
		possible := possibleCategories[t.Property]
		for i, c := range t.Categories {
			if slices.Contains(t.Categories[:i], c) {
				return invalid.Field(at+".categories", strconv.Quote(c), "each category once")
			}
			if !possible.pattern.MatchString(c) { // No request would have it: its count would be noise.
				return invalid.Field(at+".categories", strconv.Quote(c), possible.want)
			}
		}
	case Latency:
		if t.Categories != nil {
			return invalid.Field(at+".categories", "a list", "no list: only country, cache and status have categories")
		}
	default:
		return invalid.Field(at+".property", strconv.Quote(string(t.Property)), "country, cache, status or latency")
	}
	return nil
}

// fits checks a fetched task against its configuration: tokens, quota, size of reports, and that its domain contains
// every value of the property. If a report could fail because of its value, the first relay could infer values from who
// reports.
func (t *TaskConfig) fits(at string, of *task.Task) error {
	bins := uint64(len(t.Categories)) + 1
	switch {
	case (of.Clients.Kind == task.ClientToken) != (t.IssuerKey != ""):
		return invalid.Field(at+".issuerKey", strconv.Quote(t.IssuerKey),
			"the name of the secret with the issuer's API key if the task's clients need tokens, else none; this "+
				"task's are of kind "+string(of.Clients.Kind))
	case t.quota() > of.Clients.Quota:
		return invalid.Field(at+".quota", strconv.FormatUint(t.quota(), 10),
			fmt.Sprintf("at most the task's quota, %d", of.Clients.Quota))
	case reportBytes(of) > maxReport:
		return invalid.Field(at+".task", fmt.Sprintf("with reports of %d bytes", reportBytes(of)),
			fmt.Sprintf("a task whose reports have at most %d: an instance holds them until they leave", maxReport))
	case t.Property == Latency &&
		(of.Input.Bins != 0 && of.Query.Info().Shape != task.PerBin || of.Input.Labels || !of.Input.Clip):
		return invalid.Field(at+".property", "latency",
			"a task of a clipped real number: query sum, mean or histogram with clip")
	case t.Categories != nil && (!of.Input.Labels || of.Input.Bins != bins):
		return invalid.Field(at+".categories", fmt.Sprintf("%d and one for the rest", len(t.Categories)),
			fmt.Sprintf("a task of categories (labels) with %d bins; this one has %d", bins, of.Input.Bins))
	}
	return nil
}

// value converts an observed request to the value that the task asks for. Every observation has a value.
func (t *TaskConfig) value(o *Observation) float64 {
	var category string
	switch t.Property {
	case Latency:
		return max(o.Latency, 0)
	case Country:
		category = o.Country
	case Cache:
		category = strings.ToUpper(o.Cache)
	case Status:
		if o.Status >= 100 && o.Status <= 599 {
			category = strconv.Itoa(o.Status/100) + "xx"
		}
	}
	if i := slices.Index(t.Categories, category); i >= 0 {
		return float64(i)
	}
	return float64(len(t.Categories))
}

// quota returns how many reports a network may make in an epoch of the task.
func (t *TaskConfig) quota() uint64 {
	if t.Quota == nil {
		return 1
	}
	return *t.Quota
}

func (t *TaskConfig) sample() float64 {
	if t.Sample == nil {
		return 1
	}
	return *t.Sample
}

func (c *Config) delay() time.Duration {
	seconds := float64(defaultDelay)
	if c.Delay != nil {
		seconds = *c.Delay
	}
	return time.Duration(seconds * float64(time.Second))
}

func number(x float64) string { return decimal.Format(x, -1) }
