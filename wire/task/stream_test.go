package task_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// streamOf returns the first task of a stream that allows some changes, the second task, and the second task's id.
func streamOf(allow ...string) (root, before *task.Task, id task.ID) {
	slices.Sort(allow)
	root, before = sample(), sample()
	root.Stream = &task.StreamPosition{Name: "site", Allow: allow}
	before.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: task.ID{1}, Allow: allow}
	before.Epochs.Start = root.Epochs.Over()
	return root, before, task.ID{2}
}

// follow returns a third task for the stream: one that may follow the second task of streamOf.
func follow(before *task.Task, id task.ID) *task.Task {
	next := sample()
	next.Stream = &task.StreamPosition{Name: "site", Position: 2, Before: id, Allow: before.Stream.Allow}
	next.Epochs.Start, next.Epochs.Count = before.Epochs.Over(), 7
	for i := range next.Relays {
		next.Relays[i].KeyList[0] ^= 0xff
	}
	next.Verifier.KeyList[0] ^= 0xff
	next.Clients.Issuer.KeyList[0] ^= 0xff
	return next
}

// frozen has a change for each part that a later task must share with the first task of its stream.
var frozen = map[string]func(*task.Task){
	"batch.honest":           func(t *task.Task) { t.Batch.Honest = r(8, 9) },
	"batch.min":              func(t *task.Task) { t.Batch.Min-- },
	"batch.size":             func(t *task.Task) { t.Batch.Size++ },
	"cap":                    func(t *task.Task) { t.Epochs.Cap = task.Cap{Reports: 4, Window: 28} },
	"events":                 func(t *task.Task) { t.Epochs.Events = task.Events{Most: 1, Window: 30} },
	"claim.assumption":       func(t *task.Task) { t.Claim.Assumption = task.NoneHonest },
	"claim.delta":            func(t *task.Task) { t.Claim.Delta = task.NewDelta("1e-7") },
	"claim.epsilon":          func(t *task.Task) { t.Claim.Epsilon = task.NewEpsilon("1.0") },
	"claim.total":            func(t *task.Task) { t.Claim.SetTotal("9", "1e-4") },
	"clients.issuer.signKey": func(t *task.Task) { t.Clients.Issuer.SignKey[9] ^= 1 },
	"clients.issuer.url":     func(t *task.Task) { t.Clients.Issuer.URL = "https://other.example" },
	"clients.kind":           func(t *task.Task) { t.Clients.Kind = task.ClientAddress },
	"clients.origins":        func(t *task.Task) { t.Clients.Origins = []string{"https://other.example"} },
	"clients.quota":          func(t *task.Task) { t.Clients.Quota++ },
	"epochs.length":          func(t *task.Task) { t.Epochs.Length++ },
	"input.bins":             func(t *task.Task) { t.Input.Bins++ },
	"input.clip":             func(t *task.Task) { t.Input.Clip = !t.Input.Clip },
	"input.labels":           func(t *task.Task) { t.Input.Labels = !t.Input.Labels },
	"input.range":            func(t *task.Task) { t.Input.Hi = r(181, 1) },
	"kem":                    func(t *task.Task) { t.KEM = task.KEMMLKEM768 },
	"name":                   func(t *task.Task) { t.Name = "others" },
	"noise":                  func(t *task.Task) { t.Noise = cells() },
	"pace": func(t *task.Task) {
		t.Epochs.Cap, t.Epochs.Pace = task.Cap{Reports: 56, Window: 365}, task.Cap{Reports: 4, Window: 28}
	},
	"params":             func(t *task.Task) { t.Params[1].Value = r(41, 1) },
	"protocol":           func(t *task.Task) { t.Protocol = "rappor" },
	"query":              func(t *task.Task) { t.Query = task.Sum },
	"relays":             func(t *task.Task) { t.Relays = t.Relays[:1] },
	"relays.signKey":     func(t *task.Task) { t.Relays[1].SignKey[9] ^= 1 },
	"relays.url":         func(t *task.Task) { t.Relays[1].URL = "https://other.example" },
	"rule":               func(t *task.Task) { t.Rule = "exact" },
	"slots.lanes":        func(t *task.Task) { t.Slots.Lanes++ },
	"slots.average":      func(t *task.Task) { t.Slots.Average++ },
	"slots.messageBytes": func(t *task.Task) { t.Slots.MessageBytes++ },
	"slots.padding":      func(t *task.Task) { t.Slots.Padding = task.PaddingNone },
	"slots.perLane":      func(t *task.Task) { t.Slots.PerLane++ },
	"stream.allow":       func(t *task.Task) { t.Stream.Allow = []string{"name", "rule"} },
	"stream.name":        func(t *task.Task) { t.Stream.Name = "other" },
	"verifier.signKey":   func(t *task.Task) { t.Verifier.SignKey[9] ^= 1 },
	"verifier.url":       func(t *task.Task) { t.Verifier.URL = "https://other.example" },
}

// requireRefused fails unless err is a FieldError that names the field.
func requireRefused(t *testing.T, field string, err error) {
	t.Helper()
	var refused *invalid.FieldError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, field, refused.Field, "%v", refused)
}

// TestSuccessor: a later task may always change its epochs and key lists. It may change any other part only if both the
// first task and the page allow it.
func TestSuccessor(t *testing.T) {
	root, before, id := streamOf()
	require.NoError(t, root.CheckSuccessor(before, id, follow(before, id), nil, nil))
	require.NoError(t, root.CheckSuccessor(before, id, follow(before, id), new(task.StreamPosition).Changeable(), nil))
	for field, change := range frozen {
		next := follow(before, id)
		change(next)
		requireRefused(t, field, root.CheckSuccessor(before, id, next, new(task.StreamPosition).Changeable(), nil))
		if !slices.Contains(new(task.StreamPosition).Changeable(), field) {
			continue
		}
		root, before, id := streamOf(field, "name", "rule")
		if next.Stream.Allow = root.Stream.Allow; field != "name" && field != "rule" {
			requireRefused(t, field, root.CheckSuccessor(before, id, next, []string{"name", "rule"}, nil))
		}
		require.NoError(t, root.CheckSuccessor(before, id, next, []string{"kem", field}, nil), field)
		// The comparison must be with the first task, even if the previous task had changed.
		change(before)
		back := follow(before, id)
		require.NoError(t, root.CheckSuccessor(before, id, back, nil, nil), field)
	}
	for _, name := range new(task.StreamPosition).Changeable() {
		require.Contains(t, frozen, name)
	}
}

// TestSuccessorInPlace: a later task must have the right position, the previous task's id, and a start after the
// previous task's end.
func TestSuccessorInPlace(t *testing.T) {
	for field, changes := range map[string][]func(*task.Task){
		"stream": {func(t *task.Task) { t.Stream = nil }},
		"stream.position": {func(t *task.Task) { t.Stream.Position = 1 }, func(t *task.Task) { t.Stream.Position = 3 },
			func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "site"} }},
		"stream.before": {func(t *task.Task) { t.Stream.Before[31] ^= 1 }},
		"epochs.start":  {func(t *task.Task) { t.Epochs.Start-- }},
	} {
		for _, change := range changes {
			root, before, id := streamOf()
			next := follow(before, id)
			change(next)
			requireRefused(t, field, root.CheckSuccessor(before, id, next, nil, nil))
		}
	}
	root, before, id := streamOf()
	next := follow(before, id)
	next.Epochs.Start += 12345 // a gap between two tasks is allowed
	require.NoError(t, root.CheckSuccessor(before, id, next, nil, nil))
	requireRefused(t, "stream.position", before.CheckSuccessor(before, id, next, nil, nil))
	requireRefused(t, "stream", root.CheckSuccessor(sample(), id, next, nil, nil))
}

// TestRolledKeys: a key that replaces a party's key by a rotation must count as the first task's key. No old key may
// return. A relay may be replaced if the first task lets relays' keys change and the page lists the new relay's first
// key.
func TestRolledKeys(t *testing.T) {
	root, before, id := streamOf("relays.signKey")
	old, fresh, other := root.Relays[1].SignKey, task.SignKey{1}, task.SignKey{2}
	rolled := func(rotations ...task.Rotation) *task.Task {
		next := follow(before, id)
		next.Stream.Rotations = rotations
		for i := range next.Relays {
			next.Relays[i].SignKey = next.Stream.Now(next.Relays[i].SignKey)
		}
		next.Verifier.SignKey = next.Stream.Now(next.Verifier.SignKey)
		next.Clients.Issuer.SignKey = next.Stream.Now(next.Clients.Issuer.SignKey)
		return next
	}
	for _, party := range []task.SignKey{old, root.Verifier.SignKey, root.Clients.Issuer.SignKey} {
		next := rolled(task.Rotation{Old: party, New: other}, task.Rotation{Old: other, New: fresh})
		require.NoError(t, next.Validate())
		require.NoError(t, root.CheckSuccessor(before, id, next, nil, nil))
		parsed, err := task.Parse(next.Canonical())
		require.NoError(t, err)
		require.Equal(t, next, parsed)
	}
	next := rolled(task.Rotation{Old: old, New: fresh})
	after := follow(next, task.ID{3})
	after.Stream.Position++
	requireRefused(t, "stream.rotations", root.CheckSuccessor(next, task.ID{3}, after, nil, nil))
	after.Stream.Rotations = next.Stream.Rotations
	requireRefused(t, "stream.rotations", after.Validate())
	after.Relays[1].SignKey = fresh
	require.NoError(t, after.Validate())
	require.NoError(t, root.CheckSuccessor(next, task.ID{3}, after, nil, nil))

	for _, bad := range [][]task.Rotation{{{Old: old, New: old}}, {{Old: old}},
		{{Old: old, New: fresh}, {Old: fresh, New: old}},
		{{Old: old, New: fresh}, {Old: old, New: other}}, {{Old: old, New: fresh}, {Old: other, New: fresh}},
		{{Old: old, New: fresh}, {Old: old, New: fresh}}, make([]task.Rotation, 65)} {
		next := rolled()
		next.Stream.Rotations = bad
		requireRefused(t, "stream.rotations", next.Validate())
	}
	first := sample()
	first.Stream = &task.StreamPosition{Name: "site", Rotations: []task.Rotation{{Old: other, New: fresh}}}
	requireRefused(t, "stream.rotations", first.Validate())

	next = follow(before, id)
	next.Relays[1].SignKey, next.Relays[1].URL = other, "https://third.example"
	candidates := []task.SignKey{fresh, other}
	requireRefused(t, "relays.url", root.CheckSuccessor(before, id, next, nil, nil))
	require.NoError(t, root.CheckSuccessor(before, id, next, nil, candidates))
	before.Relays[1] = next.Relays[1]
	next.Relays[1].SignKey, next.Stream.Rotations = task.SignKey{3}, []task.Rotation{{Old: other, New: task.SignKey{3}}}
	require.NoError(t, root.CheckSuccessor(before, id, next, nil, candidates), "it handed its key on since")
	for _, stranger := range []task.Rotation{{Old: task.SignKey{7}, New: fresh}, {New: fresh}} {
		listed := follow(before, id)
		listed.Stream.Rotations = []task.Rotation{stranger}
		listed.Relays[1] = before.Relays[1]
		before.Clients.Issuer.SignKey, listed.Clients.Issuer.SignKey = task.SignKey{}, task.SignKey{}
		requireRefused(t, "stream.rotations", root.CheckSuccessor(before, id, listed, nil, candidates))
	}
	closed, before, id := streamOf()
	next = follow(before, id)
	next.Relays[1].SignKey = other
	requireRefused(t, "relays.signKey", closed.CheckSuccessor(before, id, next, nil, candidates))
}
