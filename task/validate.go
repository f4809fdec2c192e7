package task

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Validate checks every field that does not depend on the protocol; the protocol checks its
// parameters itself. The error is an [invalid.FieldError] that names the field in the JSON form.
func (t *Task) Validate() error {
	if err := t.ValidateDraft(); err != nil {
		return err
	}
	if n := len(t.Relays); n < 1 || n > 8 {
		return invalid.Field("relays", strconv.Itoa(n)+" entries", "1 to 8")
	}
	for _, relay := range t.Relays {
		if !isURL(relay.URL) {
			return invalid.Field("relays.url", strconv.Quote(relay.URL), "http:// or https:// and a host, without a trailing slash")
		}
	}
	if u := t.Verifier.URL; u != "" && !isURL(u) {
		return invalid.Field("verifier.url", strconv.Quote(u), "empty, or http:// or https:// and a host, without a trailing slash")
	}
	return t.validateEpochs()
}

// ValidateDraft checks the fields a simulation needs: all but the parties and the epochs.
func (t *Task) ValidateDraft() error {
	for _, check := range []func() error{t.validateWords, t.validateInput, t.validateClaim, t.validateBatch, t.validateSlots} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Task) validateWords() error {
	switch {
	case !isName(t.Name):
		return invalid.Field("name", strconv.Quote(t.Name), "1 to 64 printable ASCII characters")
	case !oneOf(t.Query, Count, Sum, Mean, Histogram):
		return invalid.Field("query", strconv.Quote(t.Query), "count, sum, mean or histogram")
	case !isName(t.Protocol):
		return invalid.Field("protocol", strconv.Quote(t.Protocol), "the name of a protocol")
	case !isName(t.Rule):
		return invalid.Field("rule", strconv.Quote(t.Rule), "the name of an accountant's rule")
	case !oneOf(t.KEM, KEMX25519, KEMMLKEM768X25519, KEMMLKEM768):
		return invalid.Field("kem", strconv.Quote(t.KEM), "x25519, mlkem768x25519 or mlkem768")
	case !oneOf(t.Clients.Kind, ClientToken, ClientAddress):
		return invalid.Field("clients.kind", strconv.Quote(t.Clients.Kind), "token or address")
	case t.Clients.Kind == ClientToken && t.Clients.Quota != 1:
		return invalid.Field("clients.quota", strconv.FormatUint(t.Clients.Quota, 10), "1 for tokens: each is spent once")
	}
	if err := inRange("clients.quota", t.Clients.Quota, 1, 65535); err != nil {
		return err
	}
	for i, p := range t.Params {
		if !isName(p.Key) || i > 0 && t.Params[i-1].Key >= p.Key {
			return invalid.Field("params", strconv.Quote(p.Key), "names in ascending order, each once")
		}
	}
	return nil
}

func (t *Task) validateInput() error {
	in := t.Input
	if in.Labels {
		if t.Query != Histogram {
			return invalid.Field("input.labels", "true", "false, unless the query is histogram")
		}
	} else if !(in.Lo.Float64() < in.Hi.Float64()) {
		return invalid.Field("input.range", in.Lo.String()+","+in.Hi.String(), "two rationals, the first below the second")
	}
	if t.Query == Count && (in.Lo != randomizer.NewRational(0, 1) || in.Hi != randomizer.NewRational(1, 1) || in.Clip) {
		return invalid.Field("input", in.Lo.String()+","+in.Hi.String(), "range 0,1 without clipping for a count")
	}
	if t.Query == Histogram {
		return inRange("input.bins", in.Bins, 2, 1<<32-1)
	}
	return inRange("input.bins", in.Bins, 0, 0)
}

func (t *Task) validateClaim() error {
	if _, err := t.Claim.EpsilonValue(); err != nil {
		return err
	}
	_, err := t.Claim.DeltaValue()
	return err
}

func (t *Task) validateBatch() error {
	b := t.Batch
	if err := inRange("batch.size", b.Size, 1, 1<<32-1); err != nil {
		return err
	}
	if b.Honest.Num <= 0 || uint64(b.Honest.Num) > b.Honest.Den {
		return invalid.Field("batch.honest", b.Honest.String(), "a rational in (0, 1]")
	}
	if err := inRange("batch.min", b.Min, 1, b.Size); err != nil {
		return err
	}
	if b.Min > b.DefaultMin() {
		return invalid.Field("batch.min", strconv.FormatUint(b.Min, 10),
			"at most honest times size, "+strconv.FormatUint(b.DefaultMin(), 10))
	}
	return nil
}

// DefaultMin returns ⌊h·n⌋, the number of honest reports in a batch of Size submissions.
func (b Batch) DefaultMin() uint64 { return b.Honest.MulFloor(b.Size) }

func (t *Task) validateSlots() error {
	s := t.Slots
	if !oneOf(s.Padding, PaddingFull, PaddingNone) {
		return invalid.Field("slots.padding", strconv.Quote(s.Padding), "full or none")
	}
	if err := inRange("slots.lanes", s.Lanes, 1, 65535); err != nil {
		return err
	}
	if err := inRange("slots.perLane", s.PerLane, 1, 65535); err != nil {
		return err
	}
	return inRange("slots.messageBytes", s.MessageBytes, 1, 1024)
}

func (t *Task) validateEpochs() error {
	if err := inRange("epochs.length", t.Epochs.Length, 1, 366*24*3600); err != nil {
		return err
	}
	if err := inRange("epochs.start", t.Epochs.Start, 1, 1<<40); err != nil {
		return err
	}
	return inRange("epochs.count", t.Epochs.Count, 1, 65536)
}

// EpsilonValue returns ε. It is an error unless ε is a decimal in (0, 100].
func (c Claim) EpsilonValue() (float64, error) {
	return decimal("claim.epsilon", c.Epsilon, 100, "a decimal in (0, 100]")
}

// DeltaValue returns δ. It is an error unless δ is a decimal in (0, 1).
func (c Claim) DeltaValue() (float64, error) {
	return decimal("claim.delta", c.Delta, 1-1.0/(1<<53), "a decimal in (0, 1), such as 1e-6")
}

// decimal parses digits with an optional fraction and an optional negative exponent.
func decimal(field, s string, max float64, want string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || len(s) > 24 || strings.Trim(s, "0123456789.e-") != "" || s[0] == '-' || !(v > 0 && v <= max) {
		return 0, invalid.Field(field, strconv.Quote(s), want)
	}
	return v, nil
}

func inRange(field string, v, lo, hi uint64) error {
	if v < lo || v > hi {
		return invalid.Field(field, strconv.FormatUint(v, 10),
			strconv.FormatUint(lo, 10)+" to "+strconv.FormatUint(hi, 10))
	}
	return nil
}

func oneOf(s string, words ...string) bool {
	for _, w := range words {
		if s == w {
			return true
		}
	}
	return false
}

// isName accepts 1 to 64 printable ASCII characters: such a string has one encoding only, under
// every Unicode normalization.
func isName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}

func isURL(s string) bool {
	host, ok := strings.CutPrefix(s, "https://")
	if !ok {
		host, ok = strings.CutPrefix(s, "http://")
	}
	return ok && host != "" && len(s) <= 256 && !strings.HasSuffix(s, "/") && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-:[]/_~") == ""
}
