package task

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
)

// Validate checks every field that does not depend on the protocol; the protocol checks its own parameters. The error
// is an [invalid.FieldError] that names the field as in the JSON form.
func (t *Task) Validate() error {
	if err := t.ValidateDraft(); err != nil {
		return err
	}
	if n := len(t.Relays); n < 1 || n > MaxRelays {
		return invalid.Field("relays", strconv.Itoa(n)+" entries", "1 to "+strconv.Itoa(MaxRelays))
	}
	for i, relay := range t.Relays {
		if !isURL(relay.URL) {
			return invalid.Field("relays.url", invalid.Quote(relay.URL), wantURL)
		}
		if err := t.validateKeys("relays", i); err != nil {
			return err
		}
	}
	if u := t.Verifier.URL; u != "" && !isURL(u) {
		return invalid.Field("verifier.url", invalid.Quote(u), "empty, or "+wantURL)
	}
	if err := t.validateKeys("verifier", len(t.Relays)); err != nil {
		return err
	}
	if err := t.validateIssuer(); err != nil {
		return err
	}
	if t.hasReplaced() {
		return invalid.Field("stream.rotations", "a party's key", "only keys that no party still uses")
	}
	return t.validateEpochs()
}

// validateIssuer checks that a task with tokens has an issuer of its own, and that other tasks have none. The issuer
// must not be the verifier. A verifier that issues tokens could create clients of its own and surround an honest client
// with them.
func (t *Task) validateIssuer() error {
	issuer := t.Clients.Issuer
	if t.Clients.Kind != ClientToken {
		if issuer != (Party{}) {
			return invalid.Field("clients.issuer", invalid.Quote(issuer.URL), "none, unless clients.kind is token")
		}
		return nil
	}
	if !isURL(issuer.URL) {
		return invalid.Field("clients.issuer.url", invalid.Quote(issuer.URL), wantURL)
	}
	if err := checkKeys("clients.issuer", issuer); err != nil {
		return err
	}
	for hop := range t.VerifierHop() + 1 {
		if other := t.Party(hop); other.SignKey == issuer.SignKey || other.KeyList == issuer.KeyList {
			return invalid.Field("clients.issuer", "keys of the party at hop "+strconv.Itoa(hop),
				"an issuer that is no relay and not the verifier")
		}
	}
	return nil
}

// checkKeys checks that a party has a signing key and a key list. A zero Ed25519 key is a point of low order, for which
// anybody can make signatures.
func checkKeys(field string, party Party) error {
	if party.SignKey.IsZero() {
		return invalid.Field(field+".signKey", "all zero", "the party's Ed25519 key")
	}
	if party.KeyList.IsZero() {
		return invalid.Field(field+".keyList", "all zero", "the hash of the party's list of keys")
	}
	return nil
}

// validateKeys checks that the party at a hop has keys, and shares none with an earlier party. A relay at two hops
// would be one relay that looks like two.
func (t *Task) validateKeys(field string, hop int) error {
	party := t.Party(hop)
	if err := checkKeys(field, party); err != nil {
		return err
	}
	for before := range hop {
		if other := t.Party(before); other.SignKey == party.SignKey || other.KeyList == party.KeyList {
			return invalid.Field(field, "keys of the party at hop "+strconv.Itoa(hop),
				"other keys than those of hop "+strconv.Itoa(before)+": each party once")
		}
	}
	return nil
}

// ValidateDraft checks the fields that a simulation needs: all except the parties and the epochs.
func (t *Task) ValidateDraft() error {
	for _, check := range []func() error{
		t.validateWords, t.validateInput, t.validateClaim, t.validateBatch, t.validateSlots, t.validateStream,
		t.validateNoise, t.Epochs.CheckLimits, t.validateEvents,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Task) validateWords() error {
	switch {
	case !isName(t.Name):
		return invalid.Field("name", invalid.Quote(t.Name), "1 to 64 printable ASCII characters")
	case t.Query.Info().Query == "":
		return invalid.Field("query", invalid.Quote(string(t.Query)),
			"count, sum, mean, histogram, vector, vectormean or strings")
	case !isName(t.Protocol):
		return invalid.Field("protocol", invalid.Quote(t.Protocol), "the name of a protocol")
	case !isName(t.Rule):
		return invalid.Field("rule", invalid.Quote(t.Rule), "the name of an accountant's rule")
	case !oneOf(t.KEM, KEMX25519, KEMMLKEM768X25519, KEMMLKEM768):
		return invalid.Field("kem", invalid.Quote(string(t.KEM)), "x25519, mlkem768x25519 or mlkem768")
	case !oneOf(t.Clients.Kind, ClientToken, ClientAddress):
		return invalid.Field("clients.kind", invalid.Quote(string(t.Clients.Kind)), "token or address")
	case t.Clients.Kind == ClientToken && t.Clients.Quota != 1:
		return invalid.Field("clients.quota", strconv.FormatUint(t.Clients.Quota, 10),
			"1 for tokens: each is spent once")
	}
	if err := inRange("clients.quota", t.Clients.Quota, 1, 65535); err != nil {
		return err
	}
	if err := t.ValidateOrigins(); err != nil {
		return err
	}
	return t.validateParams()
}

func (t *Task) validateParams() error {
	if len(t.Params) > maxParams {
		return invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "at most "+strconv.Itoa(maxParams))
	}
	for i, p := range t.Params {
		if !isName(p.Key) || i > 0 && t.Params[i-1].Key >= p.Key {
			return invalid.Field("params", invalid.Quote(p.Key), "names in ascending order, each once")
		}
		if err := validRational("params."+p.Key, p.Value); err != nil {
			return err
		}
	}
	return nil
}

// validRational returns an error unless r is in lowest terms, as [randomizer.NewRational] makes it. So each number has
// only one text form.
func validRational(field string, r randomizer.Rational) error {
	_, err := randomizer.ParseRational(field, r.String())
	return err
}

func (t *Task) validateInput() error {
	in := t.Input
	for _, bound := range []randomizer.Rational{in.Lo, in.Hi} {
		if err := validRational("input.range", bound); err != nil {
			return err
		}
	}
	unit := in.Lo == randomizer.NewRational(0, 1) && in.Hi == randomizer.NewRational(1, 1)
	switch {
	case in.Labels && t.Query != Histogram:
		return invalid.Field("input.labels", "true", "false, unless the query is histogram")
	case in.Labels && (!unit || in.Clip): // they would have no effect, only give a task two forms
		return invalid.Field("input", "labels with a range or clipping", "labels alone: they are 0 to bins-1")
	case !(in.Lo.Float64() < in.Hi.Float64()):
		return invalid.Field("input.range", in.Lo.String()+","+in.Hi.String(),
			"two rationals, the first below the second")
	case t.Query == VectorMean && (in.Lo != randomizer.NewRational(-1, 1) || in.Hi != randomizer.NewRational(1, 1)):
		return invalid.Field("input.range", in.Lo.String()+","+in.Hi.String(),
			"-1,1 for vectormean: vectors of norm at most 1")
	case (t.Query == Count || t.Query == Strings) && (!unit || in.Clip):
		return invalid.Field("input", in.Lo.String()+","+in.Hi.String(),
			"range 0,1 without clipping for a count and for strings")
	}
	switch t.Query {
	case Histogram:
		return inRange("input.bins", in.Bins, 2, 1<<32-1)
	case Vector, VectorMean:
		return inRange("input.dim", in.Bins, 1, t.Query.Info().MostBins)
	case Strings:
		return inRange("input.length", in.Bins, 1, t.Query.Info().MostBins)
	}
	return inRange("input.bins", in.Bins, 0, 0)
}

func (t *Task) validateClaim() error {
	if t.Claim.Assumption.String() == "" {
		return invalid.Field("claim.assumption", strconv.Itoa(int(t.Claim.Assumption)), "min-honest or none")
	}
	return t.Claim.Check()
}

func (t *Task) validateBatch() error {
	b := t.Batch
	if err := inRange("batch.size", b.Size, 1, 1<<32-1); err != nil {
		return err
	}
	if err := validRational("batch.honest", b.Honest); err != nil {
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

// DefaultMin returns ⌊h·n⌋, the number of submissions in a batch that are assumed honest.
func (b Batch) DefaultMin() uint64 { return b.Honest.MulFloor(b.Size) }

func (t *Task) validateSlots() error {
	s := t.Slots
	if !oneOf(s.Padding, PaddingFull, PaddingNone) {
		return invalid.Field("slots.padding", invalid.Quote(string(s.Padding)), "full or none")
	}
	if err := inRange("slots.lanes", s.Lanes, 1, 65535); err != nil {
		return err
	}
	if err := inRange("slots.perLane", s.PerLane, 1, maxSlots); err != nil {
		return err
	}
	if err := inRange("slots.messageBytes", s.MessageBytes, 1, 1024); err != nil {
		return err
	}
	if n := s.Lanes * s.PerLane; n > maxSlots {
		return invalid.Field("slots", strconv.FormatUint(n, 10)+" per client",
			"lanes times perLane up to "+strconv.Itoa(maxSlots))
	}
	if s.Average > 0 && (s.Padding != PaddingNone || s.Average >= s.PerLane) {
		return invalid.Field("slots.average", strconv.FormatUint(s.Average, 10),
			"below perLane under padding none, 0 for no bound, and 0 under padding full")
	}
	if n := t.MostSlots(); n > maxLane {
		return invalid.Field("slots", strconv.FormatUint(n, 10)+" slots in a lane of a batch",
			"batch.size times perLane, or times average under padding none, up to 2^36")
	}
	return nil
}

// maxLane is the largest number of clients' slots in a lane of a batch. With it, the hashes of the lane's chunks fit
// into one byte string.
const maxLane = 1 << 36

func (t *Task) validateEpochs() error {
	e := t.Epochs
	if err := inRange("epochs.start", e.Start, 1, 1<<40); err != nil {
		return err
	}
	if e.Length != Month {
		if err := inRange("epochs.length", uint64(e.Length), 1, 366*day); err != nil {
			return err
		}
	} else if month := e.Begin(0); e.Start != month {
		return invalid.Field("epochs.start", strconv.FormatUint(e.Start, 10), "the start of a month in UTC, such as "+
			strconv.FormatUint(month, 10)+", as its epochs are months")
	}
	return inRange("epochs.count", t.Epochs.Count, 1, MaxEpochs)
}

func inRange(field string, v, lo, hi uint64) error {
	if v < lo || v > hi {
		return invalid.Field(field, strconv.FormatUint(v, 10),
			strconv.FormatUint(lo, 10)+" to "+strconv.FormatUint(hi, 10))
	}
	return nil
}

func oneOf[T ~string](s T, words ...T) bool {
	for _, w := range words {
		if s == w {
			return true
		}
	}
	return false
}

// isName reports whether s has 1 to 64 printable ASCII characters. Such a string has the same encoding under every
// Unicode normalization.
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

const wantURL = "http:// or https:// and a host in lower case, up to 256 characters, without a trailing slash"

func isURL(s string) bool {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	return ok && rest != "" && len(s) <= 256 && strings.Trim(rest,
		"abcdefghijklmnopqrstuvwxyz0123456789.-:[]/_~") == "" &&
		!strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, ":") && !strings.HasSuffix(rest, "/")
}
