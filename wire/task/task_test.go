package task_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func r(num int64, den uint64) randomizer.Rational { return randomizer.NewRational(num, den) }

func sample() *task.Task {
	key := func(b byte) (k [32]byte) { return [32]byte(bytes.Repeat([]byte{b}, 32)) }
	return &task.Task{
		Name: "delays", Query: task.Mean, Protocol: "realsum", Rule: "revealed", KEM: task.KEMX25519,
		Params: []task.Param{{Key: "gamma", Value: r(1, 32)}, {Key: "k", Value: r(40, 1)}},
		Input:  task.Input{Lo: r(0, 1), Hi: r(180, 1), Clip: true},
		Claim:  task.NewClaim("1", "1e-6"),
		Batch:  task.Batch{Size: 5000, Honest: r(9, 10), Min: 4500},
		Slots:  task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1},
		Epochs: task.Epochs{Start: 1_800_000_000, Length: 86400, Count: 30},
		Clients: task.Clients{Kind: task.ClientToken, Quota: 1,
			Issuer: task.Party{URL: "https://issuer.example", SignKey: key(7), KeyList: key(8)}},
		Relays: []task.Party{
			{URL: "https://one.example", SignKey: key(1), KeyList: key(2)},
			{URL: "https://two.example:8443/relay", SignKey: key(3), KeyList: key(4)},
		},
		Verifier: task.Party{SignKey: key(5), KeyList: key(6)},
	}
}

// variants returns valid tasks that together use every option and both ends of each range.
func variants() map[string]*task.Task {
	out := map[string]*task.Task{"mean": sample()}
	add := func(name string, change func(*task.Task)) {
		t := sample()
		change(t)
		out[name] = t
	}
	add("labels", func(t *task.Task) {
		t.Query, t.Input = task.Histogram, task.Input{Lo: r(0, 1), Hi: r(1, 1), Bins: 1<<32 - 1, Labels: true}
	})
	add("count by address", func(t *task.Task) {
		t.Query, t.Input = task.Count, task.Input{Lo: r(0, 1), Hi: r(1, 1)}
		t.Clients = task.Clients{Kind: task.ClientAddress, Quota: 65535}
	})
	add("largest", func(t *task.Task) {
		t.Name = strings.Repeat("~", 64)
		t.Batch = task.Batch{Size: 1<<32 - 1, Honest: r(1, 1), Min: 1}
		t.Slots = task.Slots{Padding: task.PaddingNone, Lanes: 65535, PerLane: 1, MessageBytes: 1024}
		t.Epochs = task.Epochs{Start: 1 << 40, Length: 31622400, Count: 65536}
		t.KEM = task.KEMMLKEM768
	})
	add("most slots in a lane", func(t *task.Task) {
		t.Batch = task.Batch{Size: 1<<32 - 1, Honest: r(1, 1), Min: 1}
		t.Slots = task.Slots{Padding: task.PaddingNone, Lanes: 1, PerLane: 1 << 18, MessageBytes: 2, Average: 16}
	})
	add("many slots", func(t *task.Task) {
		t.Slots.Lanes, t.Slots.PerLane, t.KEM = 2, 65535, task.KEMMLKEM768X25519
	})
	add("no parameters, one relay, a verifier with an address", func(t *task.Task) {
		t.Params, t.Relays, t.Verifier.URL = nil, t.Relays[:1], "http://[::1]:8080"
	})
	add("many parameters", func(t *task.Task) {
		t.Params = nil
		for i := range 300 {
			t.Params = append(t.Params,
				task.Param{Key: "p" + hex.EncodeToString([]byte{byte(i >> 8), byte(i)}), Value: r(-int64(i), 7)})
		}
	})
	add("months", func(t *task.Task) {
		t.Epochs = task.Epochs{Start: 1_798_761_600, Length: task.Month, Count: 65536}
	})
	add("one origin", func(t *task.Task) { t.Clients.Origins = []string{"null"} })
	add("most origins", func(t *task.Task) { t.Clients.Origins = mostOrigins() })
	for name, change := range parts {
		add(name, change)
	}
	return out
}

func TestCanonicalRoundTrip(t *testing.T) {
	for name, want := range variants() {
		require.NoError(t, want.Validate(), name)
		got, err := task.Parse(want.Canonical())
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Equal(t, want.Canonical(), got.Canonical())
	}
}

// TestEveryFieldIsCanonical: tasks that differ in any field must have different canonical forms.
func TestEveryFieldIsCanonical(t *testing.T) {
	forms := map[string]string{string(sample().Canonical()): "the sample"}
	for name, change := range map[string]func(*task.Task){
		"name": func(t *task.Task) { t.Name = "x" }, "query": func(t *task.Task) { t.Query = "x" },
		"protocol": func(t *task.Task) { t.Protocol = "x" }, "rule": func(t *task.Task) { t.Rule = "x" },
		"params key":   func(t *task.Task) { t.Params[0].Key = "x" },
		"params value": func(t *task.Task) { t.Params[0].Value = r(1, 3) },
		"params fewer": func(t *task.Task) { t.Params = t.Params[:1] },
		"lo":           func(t *task.Task) { t.Input.Lo = r(1, 3) }, "hi": func(t *task.Task) { t.Input.Hi = r(1, 3) },
		"bins": func(t *task.Task) { t.Input.Bins = 9 }, "labels": func(t *task.Task) { t.Input.Labels = true },
		"clip":    func(t *task.Task) { t.Input.Clip = false },
		"epsilon": func(t *task.Task) { t.Claim.Epsilon = task.NewEpsilon("2") },
		"delta":   func(t *task.Task) { t.Claim.Delta = task.NewDelta("2") },
		"size":    func(t *task.Task) { t.Batch.Size = 9 }, "honest": func(t *task.Task) { t.Batch.Honest = r(1, 3) },
		"min":     func(t *task.Task) { t.Batch.Min = 9 },
		"padding": func(t *task.Task) { t.Slots.Padding = "none" }, "lanes": func(t *task.Task) { t.Slots.Lanes = 9 },
		"perLane":      func(t *task.Task) { t.Slots.PerLane = 9 },
		"messageBytes": func(t *task.Task) { t.Slots.MessageBytes = 9 },
		"start":        func(t *task.Task) { t.Epochs.Start = 9 }, "length": func(t *task.Task) { t.Epochs.Length = 9 },
		"count": func(t *task.Task) { t.Epochs.Count = 9 },
		"kind":  func(t *task.Task) { t.Clients.Kind = "address" }, "quota": func(t *task.Task) { t.Clients.Quota = 9 },
		"origin":         func(t *task.Task) { t.Clients.Origins = []string{"https://a.example"} },
		"another origin": func(t *task.Task) { t.Clients.Origins = []string{"https://b.example"} },
		"two origins":    func(t *task.Task) { t.Clients.Origins = []string{"https://a.example", "https://b.example"} },
		"issuer url":     func(t *task.Task) { t.Clients.Issuer.URL = "x" },
		"issuer key":     func(t *task.Task) { t.Clients.Issuer.SignKey[31]++ },
		"issuer list":    func(t *task.Task) { t.Clients.Issuer.KeyList[31]++ },
		"relay url":      func(t *task.Task) { t.Relays[1].URL = "x" },
		"relay key":      func(t *task.Task) { t.Relays[1].SignKey[31]++ },
		"relay list":     func(t *task.Task) { t.Relays[1].KeyList[31]++ },
		"relays swapped": func(t *task.Task) { t.Relays[0], t.Relays[1] = t.Relays[1], t.Relays[0] },
		"relays fewer":   func(t *task.Task) { t.Relays = t.Relays[:1] },
		"verifier url":   func(t *task.Task) { t.Verifier.URL = "x" },
		"verifier key":   func(t *task.Task) { t.Verifier.SignKey[0]++ },
		"verifier list":  func(t *task.Task) { t.Verifier.KeyList[0]++ }, "kem": func(t *task.Task) { t.KEM = "x" },
	} {
		addForm(t, forms, name, sample(), change)
	}
	for name, change := range partFields() {
		addForm(t, forms, name, sample(), change)
	}
}

// addForm adds the canonical form of a changed task to seen, and fails if seen already contains it.
func addForm(t *testing.T, seen map[string]string, name string, changed *task.Task, change func(*task.Task)) {
	t.Helper()
	change(changed)
	form := string(changed.Canonical())
	require.NotContains(t, seen, form, name)
	seen[form] = name
}

func TestValidateNamesTheField(t *testing.T) {
	overlong := strings.Repeat("x", 65)
	type change = func(*task.Task)
	for _, c := range []struct {
		field   string
		changes []change
	}{
		{"name", []change{func(t *task.Task) { t.Name = "" }, func(t *task.Task) { t.Name = overlong },
			func(t *task.Task) { t.Name = "dé" }, func(t *task.Task) { t.Name = "a\n" },
			func(t *task.Task) { t.Name = "\x7f" }}},
		{"query", []change{func(t *task.Task) { t.Query = "" }, func(t *task.Task) { t.Query = "Mean" }}},
		{"protocol", []change{func(t *task.Task) { t.Protocol = "" }, func(t *task.Task) { t.Protocol = overlong }}},
		{"rule", []change{func(t *task.Task) { t.Rule = "" }, func(t *task.Task) { t.Rule = "\x00" }}},
		{"kem", []change{func(t *task.Task) { t.KEM = "" }, func(t *task.Task) { t.KEM = "X25519" }}},
		{"clients.kind", []change{func(t *task.Task) { t.Clients.Kind = "" }}},
		{"clients.quota", []change{
			func(t *task.Task) { t.Clients.Quota = 2 }, func(t *task.Task) { t.Clients.Quota = 0 },
			func(t *task.Task) { t.Clients = task.Clients{Kind: task.ClientAddress, Quota: 65536} },
			func(t *task.Task) { t.Clients = task.Clients{Kind: task.ClientAddress, Quota: 0} },
		}},
		{"clients.origins", []change{
			func(t *task.Task) { t.Clients.Origins = []string{"https://b.example", "https://a.example"} },
			func(t *task.Task) { t.Clients.Origins = []string{"https://a.example", "https://a.example"} },
			func(t *task.Task) { t.Clients.Origins = []string{"https://a.example/"} },
			func(t *task.Task) { t.Clients.Origins = append(mostOrigins(), "null") },
		}},
		{"clients.issuer", []change{
			func(t *task.Task) { t.Clients.Kind = task.ClientAddress },
			func(t *task.Task) {
				t.Clients.Kind, t.Clients.Issuer = task.ClientAddress, task.Party{URL: "https://issuer.example"}
			},
			func(t *task.Task) { t.Clients.Issuer.SignKey = t.Verifier.SignKey },
			func(t *task.Task) { t.Clients.Issuer.SignKey = t.Relays[1].SignKey },
			func(t *task.Task) { t.Clients.Issuer.KeyList = t.Relays[0].KeyList },
		}},
		{"clients.issuer.url", urls(func(t *task.Task, u string) { t.Clients.Issuer.URL = u }, "")},
		{"clients.issuer.signKey", []change{func(t *task.Task) { t.Clients.Issuer.SignKey = task.SignKey{} }}},
		{"clients.issuer.keyList", []change{func(t *task.Task) { t.Clients.Issuer.KeyList = task.KeyListHash{} }}},
		{"params", []change{
			func(t *task.Task) { t.Params[0].Key = "k" }, func(t *task.Task) { t.Params[0].Key = "z" },
			func(t *task.Task) { t.Params[0].Key = "" },
			func(t *task.Task) { t.Params = make([]task.Param, 4097) },
		}},
		{"params.gamma", []change{
			func(t *task.Task) { t.Params[0].Value = randomizer.Rational{} },
			func(t *task.Task) { t.Params[0].Value = randomizer.Rational{Num: 2, Den: 4} },
			func(t *task.Task) { t.Params[0].Value = randomizer.Rational{Num: 1, Den: 1 << 63} },
			func(t *task.Task) { t.Params[0].Value = randomizer.Rational{Num: -1 << 63, Den: 1} },
		}},
		{"input.labels", []change{func(t *task.Task) { t.Input.Labels = true }}},
		{"input.range", []change{
			func(t *task.Task) { t.Input.Hi = t.Input.Lo }, func(t *task.Task) { t.Input.Lo = r(181, 1) },
			func(t *task.Task) { t.Input.Lo = randomizer.Rational{} },
			func(t *task.Task) { t.Input.Hi = randomizer.Rational{Num: 360, Den: 2} },
			func(t *task.Task) { t.Input.Lo, t.Input.Hi = r(1<<62, 1), r(1<<62+1, 1) }, // the same float64
		}},
		{"input", []change{
			func(t *task.Task) { t.Query = task.Count },
			func(t *task.Task) { t.Query, t.Input = task.Count, task.Input{Lo: r(0, 1), Hi: r(1, 1), Clip: true} },
			func(t *task.Task) {
				t.Query, t.Input.Labels, t.Input.Clip, t.Input.Bins = task.Histogram, true, false, 4
			},
			func(t *task.Task) {
				t.Query, t.Input = task.Histogram,
					task.Input{Lo: r(0, 1), Hi: r(1, 1), Bins: 4, Labels: true, Clip: true}
			},
		}},
		{"input.bins", []change{
			func(t *task.Task) { t.Input.Bins = 1 }, func(t *task.Task) { t.Query = task.Histogram },
			func(t *task.Task) { t.Query, t.Input.Bins = task.Histogram, 1 },
			func(t *task.Task) { t.Query, t.Input.Bins = task.Histogram, 1<<32 },
		}},
		{"claim.epsilon", decimals(func(t *task.Task, s string) { t.Claim.Epsilon = task.NewEpsilon(s) }, "101")},
		{"claim.delta", decimals(func(t *task.Task, s string) { t.Claim.Delta = task.NewDelta(s) }, "1", "1.5",
			"0.99999999999999999999")},
		{"batch.size", []change{func(t *task.Task) { t.Batch.Size = 0 },
			func(t *task.Task) { t.Batch.Size = 1 << 32 }}},
		{"batch.honest", []change{
			func(t *task.Task) { t.Batch.Honest = r(0, 1) }, func(t *task.Task) { t.Batch.Honest = r(11, 10) },
			func(t *task.Task) { t.Batch.Honest = r(-1, 2) },
			func(t *task.Task) { t.Batch.Honest = randomizer.Rational{} },
			func(t *task.Task) { t.Batch.Honest = randomizer.Rational{Num: 18, Den: 20} },
		}},
		{"batch.min", []change{func(t *task.Task) { t.Batch.Min = 0 }, func(t *task.Task) { t.Batch.Min = 4501 },
			func(t *task.Task) { t.Batch.Min = 5001 }}},
		{"slots.padding", []change{func(t *task.Task) { t.Slots.Padding = "" }}},
		{"slots.lanes", []change{func(t *task.Task) { t.Slots.Lanes = 0 },
			func(t *task.Task) { t.Slots.Lanes = 65536 }}},
		{"slots.perLane", []change{
			func(t *task.Task) { t.Slots.PerLane = 0 }, func(t *task.Task) { t.Slots.PerLane = 1<<18 + 1 },
			func(t *task.Task) { t.Slots.PerLane = 1<<64 - 1 },
		}},
		{"slots", []change{func(t *task.Task) { t.Slots.Lanes, t.Slots.PerLane = 65535, 65535 },
			func(t *task.Task) { t.Slots.Lanes, t.Slots.PerLane = 3, 87382 },
			func(t *task.Task) { t.Slots.PerLane, t.Batch.Size = 1<<16, 1<<20+1 },
			func(t *task.Task) {
				t.Slots.Padding, t.Slots.Lanes, t.Slots.PerLane, t.Slots.Average = task.PaddingNone, 1, 1<<18, 17
				t.Batch.Size = 1<<32 - 1
			}}},
		{"slots.average", []change{
			func(t *task.Task) { t.Slots.PerLane, t.Slots.Average = 3, 2 }, // under padding full
			func(t *task.Task) { t.Slots.Padding, t.Slots.PerLane, t.Slots.Average = task.PaddingNone, 3, 3 },
			func(t *task.Task) { t.Slots.Padding, t.Slots.PerLane, t.Slots.Average = task.PaddingNone, 3, 1<<64-1 },
		}},
		{"slots.messageBytes", []change{func(t *task.Task) { t.Slots.MessageBytes = 0 },
			func(t *task.Task) { t.Slots.MessageBytes = 1025 }}},
		{"epochs.start", []change{func(t *task.Task) { t.Epochs.Start = 0 },
			func(t *task.Task) { t.Epochs.Start = 1<<40 + 1 },
			func(t *task.Task) { t.Epochs.Start, t.Epochs.Length = 1_798_761_601, task.Month }}},
		{"epochs.length", []change{func(t *task.Task) { t.Epochs.Length = 0 },
			func(t *task.Task) { t.Epochs.Length = 31622401 },
			func(t *task.Task) { t.Epochs.Length = task.Month + 1 }}},
		{"epochs.count", []change{func(t *task.Task) { t.Epochs.Count = 0 },
			func(t *task.Task) { t.Epochs.Count = 65537 }}},
		{"relays", []change{
			func(t *task.Task) { t.Relays = nil }, func(t *task.Task) { t.Relays = make([]task.Party, 9) },
			func(t *task.Task) { t.Relays[1].SignKey = t.Relays[0].SignKey },
			func(t *task.Task) { t.Relays[1].KeyList = t.Relays[0].KeyList },
		}},
		{"relays.url", urls(func(t *task.Task, u string) { t.Relays[1].URL = u }, "")},
		{"relays.signKey", []change{func(t *task.Task) { t.Relays[0].SignKey = task.SignKey{} }}},
		{"relays.keyList", []change{func(t *task.Task) { t.Relays[0].KeyList = task.KeyListHash{} }}},
		{"verifier.url", urls(func(t *task.Task, u string) { t.Verifier.URL = u })},
		{"verifier", []change{func(t *task.Task) { t.Verifier.SignKey = t.Relays[0].SignKey },
			func(t *task.Task) { t.Verifier.KeyList = t.Relays[1].KeyList }}},
		{"verifier.signKey", []change{func(t *task.Task) { t.Verifier.SignKey = task.SignKey{} }}},
		{"verifier.keyList", []change{func(t *task.Task) { t.Verifier.KeyList = task.KeyListHash{} }}},
	} {
		for i, change := range c.changes {
			bad := sample()
			change(bad)
			var field *invalid.FieldError
			require.True(t, errors.As(bad.Validate(), &field), "%s, case %d: %v", c.field, i, bad.Validate())
			require.Equal(t, c.field, field.Field, "case %d: %v", i, field)
		}
	}
}

func decimals(set func(*task.Task, string), more ...string) (out []func(*task.Task)) {
	for _, s := range append(more, "", "0", "-1", "+1", " 1", "1e", "1e+1", "e1", ".5", "5.", "1.2.3", "0x1p-2", "1_0",
		"NaN", "Inf", "1e-", "1e--1", "1-2", "1e-400",
		"0.0000000000000000000000001") {
		out = append(out, func(t *task.Task) { set(t, s) })
	}
	return out
}

func urls(set func(*task.Task, string), more ...string) (out []func(*task.Task)) {
	for _, s := range append(more, "one.example", "ftp://one.example", "https://", "https:///path", "https://:443",
		"https://one.example/", "https://One.example",
		"https://user@one.example", "https://one.example?q", "https://one.example#f", "https://one example",
		"https://one.example/%2f", "https://"+strings.Repeat("a", 256)) {
		out = append(out, func(t *task.Task) { set(t, s) })
	}
	return out
}

func TestDecimals(t *testing.T) {
	for s, want := range map[string]float64{"1": 1, "0.5": 0.5, "1e-6": 1e-6, "10e-2": 0.1, "2.5e1": 25, "100": 100} {
		got := task.NewEpsilon(s)
		require.Equal(t, want, got.Value())
		require.Equal(t, s, got.String())
	}
}

// spliced returns the sample's canonical form with old replaced by new. old must occur in it.
func spliced(t testing.TB, old, new string) []byte {
	t.Helper()
	form := sample().Canonical()
	require.Contains(t, string(form), old)
	return []byte(strings.Replace(string(form), old, new, 1))
}

func TestParseIsStrict(t *testing.T) {
	form := sample().Canonical()
	for name, in := range map[string][]byte{
		"empty":                nil,
		"trailing byte":        append(bytes.Clone(form), 0),
		"another label":        spliced(t, "doona-task", "doona-tusk"),
		"another version":      spliced(t, "doona-task\x01", "doona-task\x02"),
		"version in two bytes": spliced(t, "doona-task\x01", "doona-task\xcc\x01"),
		"array16 outside":      append([]byte{0xdc, 0, 18 + 1}, form[3:]...),
		"str8 for fixstr":      spliced(t, "\xa6delays", "\xd9\x06delays"),
		"str16 for fixstr":     spliced(t, "\xa6delays", "\xda\x00\x06delays"),
		"bytes for text":       spliced(t, "\xa6delays", "\xc4\x06delays"),
		"uint32 for uint16":    spliced(t, "\xcd\x13\x88", "\xce\x00\x00\x13\x88"),
		"uint64 for uint16":    spliced(t, "\xcd\x13\x88", "\xcf\x00\x00\x00\x00\x00\x00\x13\x88"),
		"int16 for uint16":     spliced(t, "\xcd\x13\x88", "\xd1\x13\x88"),
		"array16 for fixarray": spliced(t, "\x92\x92\xa5gamma", "\xdc\x00\x02\x92\xa5gamma"),
		"map for params":       spliced(t, "\x92\x92\xa5gamma", "\x82\x92\xa5gamma"),
		"params out of order":  spliced(t, "\xa5gamma", "\xa5zamma"),
		"a param of three":     spliced(t, "\x92\xa5gamma\xa41/32", "\x93\xa5gamma\xa41/32\x01"),
		"rational not reduced": spliced(t, "\xa41/32", "\xa42/64"),
		"rational as decimal":  spliced(t, "\xa49/10", "\xa30.9"),
		"true for a flag":      spliced(t, "\xa3180\x00\x00\x01", "\xa3180\x00\x00\xc3"),
		"a flag of 2":          spliced(t, "\xa3180\x00\x00\x01", "\xa3180\x00\x00\x02"),
		"a key of 31 bytes": spliced(t, "\xc4\x20"+strings.Repeat("\x01", 32),
			"\xc4\x1f"+strings.Repeat("\x01", 31)),
		"a key as bin16":          spliced(t, "\xc4\x20\x01", "\xc5\x00\x20\x01"),
		"a key as text":           spliced(t, "\xc4\x20\x01", "\xd9\x20\x01"),
		"a party of two":          spliced(t, "\x93\xb3https://one.example", "\x92\xb3https://one.example"),
		"values that are invalid": spliced(t, "\xa4mean", "\xa4meat"),
		"nil":                     {0xc0},
	} {
		_, err := task.Parse(in)
		require.Error(t, err, name)
	}
	for n := range form {
		_, err := task.Parse(form[:n])
		require.Error(t, err, "%d bytes", n)
	}
}

// TestParseHostileLengths: memory must be proportional to the input, whatever lengths it claims.
func TestParseHostileLengths(t *testing.T) {
	head := spliced(t, "\x92\x92\xa5gamma", "!")
	head = head[:bytes.IndexByte(head, '!')]
	for name, in := range map[string][]byte{
		"params array16": append(bytes.Clone(head), 0xdc, 0x0f, 0xff),
		"more params": append(append(bytes.Clone(head), 0xdc, 0x10, 0x01),
			bytes.Repeat([]byte("\x92\xa1k\xa11"), 4097)...),
		"params array32": append(bytes.Clone(head), 0xdd, 0xff, 0xff, 0xff, 0xff),
		"name str16":     []byte("\xdc\x00\x12\xaadoona-task\x01\xda\xff\xff"),
		"name str32":     []byte("\xdc\x00\x12\xaadoona-task\x01\xdb\xff\xff\xff\xff"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := task.Parse(in)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<15), name)
	}
}

func TestEpochs(t *testing.T) {
	e := task.Epochs{Start: 1000, Length: 60, Count: 3}
	for now, want := range map[uint64]struct {
		epoch uint64
		ok    bool
	}{0: {0, false}, 999: {0, false}, 1000: {0, true}, 1059: {0, true}, 1060: {1, true}, 1179: {2, true},
		1180: {3, false}, 1 << 62: {(1<<62 - 1000) / 60, false}} {
		epoch, ok := e.At(now)
		require.Equal(t, want.ok, ok, now)
		require.Equal(t, want.epoch, epoch, now)
	}
	require.Equal(t, uint64(1060), e.End(0))
	require.Equal(t, uint64(1180), e.End(2))
}

func TestParties(t *testing.T) {
	s := sample()
	require.Equal(t, 2, s.VerifierHop())
	require.Equal(t, s.Relays[1], s.Party(1))
	require.Equal(t, s.Verifier, s.Party(2))
	gamma, ok := s.Param("gamma")
	require.True(t, ok)
	require.Equal(t, r(1, 32), gamma)
	_, ok = s.Param("p")
	require.False(t, ok)
}

// FuzzParse: a task that parses must be valid, and Canonical must write the same bytes.
func FuzzParse(f *testing.F) {
	for _, t := range variants() {
		f.Add(t.Canonical())
	}
	f.Add(spliced(f, "\xa6delays", "\xd9\x06delays"))
	f.Add(spliced(f, "\x92\x92\xa5gamma", "\xdc\xff\xff\x92\xa5gamma"))
	f.Fuzz(func(t *testing.T, in []byte) {
		parsed, err := task.Parse(in)
		if err != nil {
			return
		}
		require.NoError(t, parsed.Validate())
		require.Equal(t, in, parsed.Canonical())
	})
}

func TestIDInText(t *testing.T) {
	id := task.ID{0, 0x1a, 0xa1, 0xff}
	require.Equal(t, "001aa1ff"+strings.Repeat("00", 28), id.String())
	require.Equal(t, hex.EncodeToString(id[:]), id.String())
}
