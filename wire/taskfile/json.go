package taskfile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// document is the JSON form of a task. A draft has no epochs, relays or verifier.
type document struct {
	Name     string            `json:"name"`
	Query    task.Query        `json:"query"`
	Protocol string            `json:"protocol"`
	Rule     string            `json:"rule"`
	Params   map[string]string `json:"params"`
	Input    struct {
		Range  []string `json:"range,omitempty"`  // ["lo", "hi"], rationals; ["0", "1"] if absent
		Bins   uint64   `json:"bins,omitempty"`   // histogram only
		Dim    uint64   `json:"dim,omitempty"`    // vector and vectormean only
		Length uint64   `json:"length,omitempty"` // strings only
		Labels bool     `json:"labels,omitempty"` // values are categories 0..bins-1
		Clip   bool     `json:"clip,omitempty"`
	} `json:"input"`
	Claim struct {
		Epsilon    string `json:"epsilon"`
		Delta      string `json:"delta"`
		Total      *total `json:"total,omitempty"`      // over all epochs
		Assumption string `json:"assumption,omitempty"` // min-honest if absent
	} `json:"claim"`
	Batch struct {
		Size   uint64 `json:"size"`
		Honest string `json:"honest"`        // a rational in (0, 1]
		Min    uint64 `json:"min,omitempty"` // ⌊honest·size⌋ if absent
	} `json:"batch"`
	Slots struct {
		Padding      task.Padding `json:"padding"`
		Lanes        uint64       `json:"lanes"`
		PerLane      uint64       `json:"perLane"`
		MessageBytes uint64       `json:"messageBytes"`
		Average      uint64       `json:"average,omitempty"` // padding none only
	} `json:"slots"`
	Epochs  *epochs `json:"epochs,omitempty"`
	Cap     string  `json:"cap,omitempty"`  // "R/W": at most R reports of a browser in any W epochs
	Pace    string  `json:"pace,omitempty"` // "r/w": at most r reports in each block of w epochs; with a cap
	Events  *events `json:"events,omitempty"`
	Clients struct {
		Kind    task.ClientKind `json:"kind"`
		Quota   uint64          `json:"quota"`
		Issuer  *party          `json:"issuer,omitempty"`  // for token only
		Origins []string        `json:"origins,omitempty"` // any origin if absent
	} `json:"clients"`
	Relays   []party     `json:"relays,omitempty"`
	Verifier *party      `json:"verifier,omitempty"`
	KEM      task.KEM    `json:"kem"`
	Stream   *streamForm `json:"stream,omitempty"`
	Noise    *noise      `json:"noise,omitempty"`
}

type events struct {
	Limit   string `json:"limit"`   // "K/W": at most K reports of a browser in any W epochs differ from the default
	Default uint64 `json:"default"` // a cell: of a count 0 or 1, of a histogram its bin
}

type total struct {
	Epsilon string `json:"epsilon"`
	Delta   string `json:"delta"`
}

type streamForm struct {
	Name      string     `json:"name"`
	Position  uint64     `json:"position"`
	Before    string     `json:"before,omitempty"` // 64 hexadecimal digits; absent at position 0
	Allow     []string   `json:"allow"`
	Rotations []Rotation `json:"rotations,omitempty"`
}

type noise struct {
	Kind    string     `json:"kind"`
	Cells   uint64     `json:"cells"`
	Batches uint64     `json:"batches"` // 0 for no bound
	Tables  [][]uint64 `json:"tables,omitempty"`
	Which   [][]uint64 `json:"which,omitempty"` // [count, table]
	Tilt    *tilt      `json:"tilt,omitempty"`
	Total   *uint64    `json:"total,omitempty"`
	Rest    *uint64    `json:"rest,omitempty"` // with a total: the cell that gets what the others leave of it
	Pool    uint64     `json:"pool,omitempty"`
}

type tilt struct {
	Centre  uint64   `json:"centre"`
	Zero    uint64   `json:"zero,omitempty"`
	Weights []uint64 `json:"weights"`
	Factors []uint64 `json:"factors"`
}

type epochs struct {
	Start  time.Time `json:"start"`  // RFC 3339, whole seconds
	Length string    `json:"length"` // Go duration, whole seconds: "24h"; or "month"
	Count  uint64    `json:"count"`
}

type party struct {
	URL     string `json:"url,omitempty"`
	SignKey string `json:"signKey"` // "ed25519:" and unpadded base64url
	KeyList string `json:"keyList"` // "sha256:" and unpadded base64url
}

// Prefixes of keys and hashes in their text forms.
const (
	prefixEd25519 = "ed25519:"
	prefixSHA256  = "sha256:"
)

// FormatKey returns the text form of an Ed25519 public key, "ed25519:" and unpadded base64url. Pages pass it to
// connect({owner: …}).
func FormatKey(key task.SignKey) string {
	return prefixEd25519 + base64.RawURLEncoding.EncodeToString(key[:])
}

// FormatHash returns the text form of a key list's SHA-256, "sha256:" and unpadded base64url. A task's JSON form refers
// to a key list by it.
func FormatHash(hash task.KeyListHash) string {
	return prefixSHA256 + base64.RawURLEncoding.EncodeToString(hash[:])
}

// ParseKey parses the text form of an Ed25519 public key. field is the name of the value in an error.
func ParseKey(field, s string) (key task.SignKey, err error) {
	return key, parse32(key[:], field, s, prefixEd25519)
}

func parse32(out []byte, field, s, prefix string) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(s, prefix))
	// The comparison also refuses line ends in the text, which the decoder skips.
	if err != nil || len(raw) != 32 || prefix+base64.RawURLEncoding.EncodeToString(raw) != s {
		return invalid.Field(field, fmt.Sprintf("%q", s), prefix+" and 32 bytes as unpadded base64url")
	}
	copy(out, raw)
	return nil
}

// MarshalJSON returns the JSON form of a task or draft, indented.
func MarshalJSON(t *task.Task) ([]byte, error) {
	var d document
	d.Name, d.Query, d.Protocol, d.Rule, d.KEM = t.Name, t.Query, t.Protocol, t.Rule, t.KEM
	d.Params = map[string]string{}
	for _, p := range t.Params {
		d.Params[p.Key] = p.Value.String()
	}
	if !t.Input.Labels {
		d.Input.Range = []string{t.Input.Lo.String(), t.Input.Hi.String()}
	}
	d.Input.Labels, d.Input.Clip = t.Input.Labels, t.Input.Clip
	*d.entries() = t.Input.Bins
	d.formatClaim(t.Claim)
	d.Stream, d.Noise = formatStream(t.Stream), formatNoise(t.Noise)
	d.Batch.Size, d.Batch.Honest, d.Batch.Min = t.Batch.Size, t.Batch.Honest.String(), t.Batch.Min
	d.Slots.Padding, d.Slots.Lanes, d.Slots.PerLane = t.Slots.Padding, t.Slots.Lanes, t.Slots.PerLane
	d.Slots.MessageBytes, d.Slots.Average = t.Slots.MessageBytes, t.Slots.Average
	if !t.Epochs.Cap.IsZero() {
		d.Cap = t.Epochs.Cap.String()
	}
	if !t.Epochs.Pace.IsZero() {
		d.Pace = t.Epochs.Pace.String()
	}
	if e := t.Epochs.Events; !e.IsZero() {
		d.Events = &events{e.String(), e.Default}
	}
	d.Clients.Kind, d.Clients.Quota, d.Clients.Origins = t.Clients.Kind, t.Clients.Quota, t.Clients.Origins
	if len(t.Relays) > 0 {
		d.Epochs = &epochs{time.Unix(int64(t.Epochs.Start), 0).UTC(), formatLength(t.Epochs.Length), t.Epochs.Count}
		for _, relay := range t.Relays {
			d.Relays = append(d.Relays, formatParty(relay))
		}
		verifier := formatParty(t.Verifier)
		d.Verifier = &verifier
		if t.Clients.Kind == task.ClientToken {
			issuer := formatParty(t.Clients.Issuer)
			d.Clients.Issuer = &issuer
		}
	}
	return json.MarshalIndent(&d, "", "  ")
}

func formatParty(p task.Party) party {
	return party{p.URL, FormatKey(p.SignKey), FormatHash(p.KeyList)}
}

// ParseJSON parses the JSON form. Unknown or duplicate keys and trailing bytes are errors. A document without relays,
// verifier, epochs and issuer is a draft: it suffices for a simulation, but parties cannot run it.
func ParseJSON(in []byte) (t *task.Task, draft bool, err error) {
	var d document
	dec := json.NewDecoder(bytes.NewReader(in))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return nil, false, fmt.Errorf("couldn't read the task: %w", Locate(in, err))
	}
	if err := CheckKeys(in, func(path, key string) bool {
		return path == "params" || slices.Contains(words, key)
	}); err != nil {
		return nil, false, fmt.Errorf("couldn't read the task: %w", err)
	}
	if t, err = d.task(); err != nil {
		return nil, false, err
	}
	if d.Relays == nil && d.Verifier == nil && d.Epochs == nil && d.Clients.Issuer == nil {
		return t, true, t.ValidateDraft()
	}
	if d.Verifier == nil || d.Epochs == nil {
		return nil, false, invalid.Field("task", "some of its parties",
			"relays, verifier and epochs, or none of them for a draft")
	}
	if err := d.parties(t); err != nil {
		return nil, false, err
	}
	return t, false, t.Validate()
}

func (d *document) task() (*task.Task, error) {
	t := &task.Task{
		Name: d.Name, Query: d.Query, Protocol: d.Protocol, Rule: d.Rule, KEM: d.KEM,
		Slots: task.Slots{Padding: d.Slots.Padding, Lanes: d.Slots.Lanes, PerLane: d.Slots.PerLane,
			MessageBytes: d.Slots.MessageBytes, Average: d.Slots.Average},
		Clients: task.Clients{Kind: d.Clients.Kind, Quota: d.Clients.Quota, Origins: d.Clients.Origins},
	}
	for key, text := range d.Params {
		v, err := randomizer.ParseRational("params."+key, text)
		if err != nil {
			return nil, err
		}
		t.Params = append(t.Params, task.Param{Key: key, Value: v})
	}
	sort.Slice(t.Params, func(i, j int) bool { return t.Params[i].Key < t.Params[j].Key })
	var err error
	if t.Input, err = d.input(); err != nil {
		return nil, err
	}
	if t.Claim, err = d.claim(); err != nil {
		return nil, err
	}
	if t.Stream, err = d.Stream.parse(); err != nil {
		return nil, err
	}
	if err = t.Epochs.Cap.Parse("cap", d.Cap); err != nil {
		return nil, err
	}
	if err = t.Epochs.Pace.Parse("pace", d.Pace); err != nil {
		return nil, err
	}
	if d.Events != nil {
		if err = t.Epochs.Events.Parse(d.Events.Limit); err != nil {
			return nil, err
		}
		if t.Epochs.Events.Default = d.Events.Default; t.Epochs.Events.Most == 0 {
			return nil, invalid.Field("events.limit", fmt.Sprintf("%q", d.Events.Limit), "K/W, or no events")
		}
	}
	if t.Noise, err = d.Noise.parse(); err != nil {
		return nil, err
	}
	t.Batch = task.Batch{Size: d.Batch.Size, Min: d.Batch.Min}
	if t.Batch.Honest, err = randomizer.ParseRational("batch.honest", d.Batch.Honest); err != nil {
		return nil, err
	}
	if h := t.Batch.Honest; t.Batch.Min == 0 && h.Num > 0 && uint64(h.Num) <= h.Den {
		t.Batch.Min = t.Batch.DefaultMin()
	}
	return t, nil
}

// entries points to the field of the document that holds [task.Input.Bins] for the document's query.
func (d *document) entries() *uint64 {
	switch d.Query.Info().Shape {
	case task.PerVector:
		return &d.Input.Dim
	case task.PerText:
		return &d.Input.Length
	}
	return &d.Input.Bins
}

func (d *document) input() (in task.Input, err error) {
	in = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1),
		Labels: d.Input.Labels, Clip: d.Input.Clip}
	in.Bins = *d.entries()
	for _, other := range []struct {
		field string
		given *uint64
		want  string
	}{
		{"bins", &d.Input.Bins, "no bins, unless the query is histogram"},
		{"dim", &d.Input.Dim, "no dim, unless the query is vector or vectormean"},
		{"length", &d.Input.Length, "no length, unless the query is strings"},
	} {
		if other.given != d.entries() && *other.given != 0 {
			return in, invalid.Field("input."+other.field, fmt.Sprint(*other.given), other.want)
		}
	}
	if d.Input.Range == nil {
		return in, nil
	}
	if in.Labels || len(d.Input.Range) != 2 {
		return in, invalid.Field("input.range", fmt.Sprintf("%q", d.Input.Range),
			"two rationals, and none with labels: they are 0 to bins-1")
	}
	if in.Lo, err = randomizer.ParseRational("input.range", d.Input.Range[0]); err != nil {
		return in, err
	}
	in.Hi, err = randomizer.ParseRational("input.range", d.Input.Range[1])
	return in, err
}

// formatLength returns the length of an epoch as [ParseLength] reads it.
func formatLength(l task.Length) string {
	if l == task.Month {
		return month
	}
	return (time.Duration(l) * time.Second).String()
}

// ParseLength reads the length of an epoch: a Go duration in whole seconds, such as "24h", or "month".
func ParseLength(text string) (length task.Length, ok bool) {
	if text == month {
		return task.Month, true
	}
	d, err := time.ParseDuration(text)
	length = task.Length(d / time.Second)
	return length, err == nil && d%time.Second == 0 && d > 0 && length < task.Month
}

const month = "month"

func (d *document) parties(t *task.Task) (err error) {
	length, ok := ParseLength(d.Epochs.Length)
	if !ok {
		return invalid.Field("epochs.length", fmt.Sprintf("%q", d.Epochs.Length),
			`a duration in whole seconds, such as "24h", or "month"`)
	}
	if d.Epochs.Start.Unix() < 1 || d.Epochs.Start.Nanosecond() != 0 {
		return invalid.Field("epochs.start", d.Epochs.Start.String(), "a time in whole seconds after 1970")
	}
	t.Epochs.Start, t.Epochs.Length = uint64(d.Epochs.Start.Unix()), length
	t.Epochs.Count = d.Epochs.Count
	for _, p := range d.Relays {
		relay, err := p.parse("relays")
		if err != nil {
			return err
		}
		t.Relays = append(t.Relays, relay)
	}
	if d.Clients.Issuer != nil {
		if t.Clients.Issuer, err = d.Clients.Issuer.parse("clients.issuer"); err != nil {
			return err
		}
	}
	t.Verifier, err = d.Verifier.parse("verifier")
	return err
}

func (p party) parse(field string) (out task.Party, err error) {
	out.URL = p.URL
	if out.SignKey, err = ParseKey(field+".signKey", p.SignKey); err != nil {
		return out, err
	}
	return out, parse32(out.KeyList[:], field+".keyList", p.KeyList, prefixSHA256)
}

// words holds all keys of the document, except those under "params", which the protocol defines.
var words = keysOf(reflect.TypeFor[document]())

// keysOf returns the JSON keys of a struct type and of all struct types in it.
func keysOf(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keysOf(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); key != "" {
				keys = append(append(keys, key), keysOf(t.Field(i).Type)...)
			}
		}
	}
	return keys
}
