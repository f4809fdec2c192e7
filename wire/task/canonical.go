package task

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// label is the first field of every canonical task.
const label = "doona-task"

// Canonical returns the canonical form, docs/SPEC.md "Task":
//
//	[label, version, name, query, protocol, rule,
//	 [[key, value] …],                          // value "a" or "a/b"
//	 [lo, hi, bins, labels, clip],              // labels and clip 0 or 1
//	 [epsilon, delta, total, assumption],       // total [] or [epsilon, delta]
//	 [size, honest, min],
//	 [padding, lanes, perLane, messageBytes, average],
//	 [start, length, count],                    // with a cap [… reports, window]; with events [… reports, window,
//	                                            // most, window, default], 0 and 0 for no cap
//	 [kind, quota, [url, signKey, keyList],     // of the issuer; empty and zeros for addresses
//	  [origin …]],                              // none for any
//	 [[url, signKey, keyList] …],               // relays
//	 [url, signKey, keyList],                   // verifier
//	 kem,
//	 stream,                                    // [] or [name, position, before, [allow …]]; with rotations,
//	                                            // [old ‖ new ‖ signature …] besides
//	 noise]                                     // [] or as [Noise] says
//
// The task must be valid: [Task.Validate].
func (t *Task) Canonical() []byte {
	w := writer{}
	w.array(18)
	w.str(label)
	w.uint(Version)
	w.strs(t.Name, string(t.Query), t.Protocol, t.Rule)
	w.params(t.Params)
	w.array(5)
	w.strs(t.Input.Lo.String(), t.Input.Hi.String())
	w.uints(t.Input.Bins, flag(t.Input.Labels), flag(t.Input.Clip))
	w.claim(t.Claim)
	w.array(3)
	w.uint(t.Batch.Size)
	w.str(t.Batch.Honest.String())
	w.uint(t.Batch.Min)
	w.array(5)
	w.str(string(t.Slots.Padding))
	w.uints(t.Slots.Lanes, t.Slots.PerLane, t.Slots.MessageBytes, t.Slots.Average)
	w.epochs(t.Epochs)
	w.clients(t.Clients)
	w.array(len(t.Relays))
	for _, relay := range t.Relays {
		w.party(relay)
	}
	w.party(t.Verifier)
	w.str(string(t.KEM))
	w.stream(t.Stream)
	w.noise(t.Noise)
	return w.out
}

func (w *writer) epochs(e Epochs) {
	all := []uint64{e.Start, uint64(e.Length), e.Count}
	if !e.Cap.IsZero() || !e.Pace.IsZero() || !e.Events.IsZero() {
		all = append(all, e.Cap.Reports, e.Cap.Window)
	}
	if !e.Pace.IsZero() {
		all = append(all, e.Pace.Reports, e.Pace.Window)
	}
	if !e.Events.IsZero() {
		all = append(all, e.Events.Most, e.Events.Window, e.Events.Default)
	}
	w.numbers(all)
}

func (r *reader) epochs() Epochs {
	parts := r.arrayUpTo(10)
	e := Epochs{Start: r.uint(), Length: Length(r.uint()), Count: r.uint()}
	switch parts {
	case 3:
	case 5:
		e.Cap = r.limit()
	case 7:
		e.Cap, e.Pace = r.limit(), r.limit()
	case 8:
		e.Cap, e.Events = Cap{r.uint(), r.uint()}, r.events()
	case 10:
		e.Cap, e.Pace, e.Events = r.limit(), r.limit(), r.events()
	default:
		r.fail("want an array with 3, 5, 7, 8 or 10 elements")
	}
	return e
}

// limit reads a cap or a pace.
func (r *reader) limit() Cap {
	c := Cap{r.uint(), r.uint()}
	if c.IsZero() {
		r.fail("a limit of 0 in 0 epochs")
	}
	return c
}

func (r *reader) events() Events {
	e := Events{r.uint(), r.uint(), r.uint()}
	if e.IsZero() {
		r.fail("0 events in 0 epochs")
	}
	return e
}

func (w *writer) clients(c Clients) {
	w.array(4)
	w.str(string(c.Kind))
	w.uint(c.Quota)
	w.party(c.Issuer)
	w.list(c.Origins)
}

func (w *writer) list(texts []string) {
	w.array(len(texts))
	w.strs(texts...)
}

func (w *writer) params(params []Param) {
	w.array(len(params))
	for _, p := range params {
		w.array(2)
		w.strs(p.Key, p.Value.String())
	}
}

func (w *writer) claim(c Claim) {
	w.array(4)
	w.strs(c.Epsilon.text, c.Delta.text)
	if c.Total.IsZero() {
		w.array(0)
	} else {
		w.array(2)
		w.strs(c.Total.Epsilon.text, c.Total.Delta.text)
	}
	w.str(c.Assumption.String())
}

// Parse parses a canonical form and validates the task. It accepts exactly the bytes that [Task.Canonical] writes: it
// refuses any other encoding of the same values.
func Parse(canonical []byte) (*Task, error) {
	r := reader{in: canonical}
	t := r.task()
	if r.err == nil && len(r.in) > 0 {
		r.fail("trailing bytes")
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

func (r *reader) task() *Task {
	t := &Task{}
	r.array(18)
	if s := r.str(); s != label {
		r.fail("not a doona task")
	}
	if v := r.uint(); v != Version && r.err == nil {
		r.err = invalid.Field("version", strconv.FormatUint(v, 10), strconv.Itoa(Version))
	}
	r.strs(&t.Name, (*string)(&t.Query), &t.Protocol, &t.Rule)
	for n := r.arrayUpTo(maxParams); n > 0 && r.err == nil; n-- {
		r.array(2)
		key := r.str()
		t.Params = append(t.Params, Param{Key: key, Value: r.rational("params." + key)})
	}
	r.array(5)
	t.Input = Input{Lo: r.rational("input.range"), Hi: r.rational("input.range"), Bins: r.uint(), Labels: r.flag(),
		Clip: r.flag()}
	t.Claim = r.claim()
	r.array(3)
	t.Batch = Batch{Size: r.uint(), Honest: r.rational("batch.honest"), Min: r.uint()}
	r.array(5)
	t.Slots = Slots{Padding: Padding(r.str()), Lanes: r.uint(), PerLane: r.uint(), MessageBytes: r.uint(),
		Average: r.uint()}
	t.Epochs = r.epochs()
	r.array(4)
	t.Clients = Clients{Kind: ClientKind(r.str()), Quota: r.uint(), Issuer: r.party(), Origins: r.list(maxOrigins)}
	for range r.arrayUpTo(8) {
		t.Relays = append(t.Relays, r.party())
	}
	t.Verifier = r.party()
	t.KEM = KEM(r.str())
	t.Stream = r.stream()
	t.Noise = r.noise()
	return t
}

func (r *reader) claim() (c Claim) {
	r.array(4)
	c = NewClaim(r.str(), r.str())
	if r.optional(2) {
		epsilon, delta := r.str(), r.str()
		c.SetTotal(epsilon, delta)
		if r.err == nil && c.Total.IsZero() { // a zero total stands for none, which is encoded as []
			r.err = invalid.Field("claim.total.epsilon", `""`, wantEpsilon)
		}
	}
	word := r.str()
	if r.err == nil {
		r.err = c.Assumption.Parse(word)
	}
	return c
}

// maxParams is the largest number of parameters of a task. It limits the memory that a hostile task can claim.
const maxParams = 4096

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
