package task

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// Noise is the law of the dummies that every relay adds to every batch. A relay draws from it without knowing a
// protocol. Cell j is the message whose big-endian number is j, in lane 0. A relay's draw is independent of
// everything it receives.
//
// Its canonical form is one of
//
//	["cells", cells, batches, [[weight …] …], [[count, table] …], tilt, total]
//	["pool", cells, batches, pool]
//
// with tilt [] or [centre, zero, [weight …], [factor …]], and total [], [T] or [T, rest].
//
// The law of kind cells, for the numbers z_0 … z_{cells−1} of dummies of each cell, is
//
//	Pr[z] ∝ ∏_j Tables[table of j][z_j] · Factors[|Σ_j (Weights_j−Zero)·z_j − Centre|] · 1[Σ_j z_j = T],
//
// where entries beyond the end of a table, or of the factors, are 0, and an absent tilt or total is 1. The table of the
// cell Rest is the constant 1, without an end: the other cells are drawn, and it gets what they leave of the total.
// Kind pool adds exactly Pool dummies, of independent and uniform cells.
type Noise struct {
	Kind    string // NoiseCells or NoisePool.
	Cells   uint64 // Number of cells: 1..2²⁰ of kind cells, 1..2⁵³ of kind pool.
	Batches uint64 // Most batches of an epoch, below 2³²; 0 for no limit. It limits what a first relay can add.

	Tables [][]uint64 // Kind cells: each table has the weight of 0, 1, 2, … dummies in a cell. At least one table.
	Which  []Run      // Kind cells: which table each cell uses, in order; nil if all cells share one.
	Tilt   *Tilt      // Kind cells: nil for none.
	Total  *uint64    // Kind cells: T, the number of dummies of a batch; nil for any number.
	Rest   *uint64    // With a total: the cell that gets what the other cells leave of it; nil for none.

	Pool uint64 // Kind pool: the number of dummies of a batch. 1..2³²-1.
}

// The kinds of noise.
const (
	NoiseCells = "cells"
	NoisePool  = "pool"
)

// Run is a number of consecutive cells that use the same table.
type Run struct {
	Count uint64 // ≥ 1.
	Table uint64 // Index in Noise.Tables; differs from that of the previous run.
}

// Tilt is a factor in the probability of a draw. It depends on one weighted sum of the numbers of dummies in the cells.
type Tilt struct {
	Centre  uint64   // The value of the weighted sum to which distances are measured.
	Zero    uint64   // Subtracted from each weight, which may make it negative.
	Weights []uint64 // One weight for each cell.
	Factors []uint64 // Factor by distance of the weighted sum from Centre; beyond the end 0.
}

// Limits that bound the memory which a hostile task can claim.
const (
	maxCells   = 1 << 20
	maxNumbers = 1<<16 - 1 // Most numbers in tables, runs and tilt together.
	maxWeight  = 1<<53 - 1 // Largest weight: every language represents it exactly.
)

func (w *writer) noise(n *Noise) {
	switch {
	case n == nil:
		w.array(0)
	case n.Kind == NoisePool:
		w.array(4)
		w.str(n.Kind)
		w.uints(n.Cells, n.Batches, n.Pool)
	default:
		w.array(7)
		w.str(n.Kind)
		w.uints(n.Cells, n.Batches)
		w.array(len(n.Tables))
		for _, table := range n.Tables {
			w.numbers(table)
		}
		w.array(len(n.Which))
		for _, run := range n.Which {
			w.numbers([]uint64{run.Count, run.Table})
		}
		w.tilt(n.Tilt)
		switch {
		case n.Total == nil:
			w.array(0)
		case n.Rest == nil:
			w.numbers([]uint64{*n.Total})
		default:
			w.numbers([]uint64{*n.Total, *n.Rest})
		}
	}
}

func (w *writer) tilt(t *Tilt) {
	if t == nil {
		w.array(0)
		return
	}
	w.array(4)
	w.uints(t.Centre, t.Zero)
	w.numbers(t.Weights)
	w.numbers(t.Factors)
}

func (r *reader) noise() *Noise {
	parts := r.arrayUpTo(7)
	if parts == 0 || r.err != nil {
		return nil
	}
	n := &Noise{Kind: r.str(), Cells: r.uint(), Batches: r.uint()}
	switch {
	case n.Kind == NoisePool && parts == 4:
		n.Pool = r.uint()
	case n.Kind == NoiseCells && parts == 7:
		r.cells(n)
	default:
		r.fail("noise of no known kind")
	}
	return n
}

func (r *reader) cells(n *Noise) {
	for left := r.arrayUpTo(maxNumbers); left > 0 && r.err == nil; left-- {
		n.Tables = append(n.Tables, r.numbers(maxNumbers))
	}
	for left := r.arrayUpTo(maxNumbers); left > 0 && r.err == nil; left-- {
		r.array(2)
		n.Which = append(n.Which, Run{Count: r.uint(), Table: r.uint()})
	}
	if r.optional(4) {
		n.Tilt = &Tilt{r.uint(), r.uint(), r.numbers(maxNumbers), r.numbers(maxNumbers)}
	}
	if parts := r.arrayUpTo(2); parts > 0 {
		total := r.uint()
		if n.Total = &total; parts == 2 {
			rest := r.uint()
			n.Rest = &rest
		}
	}
}

func (t *Task) validateNoise() error {
	n := t.Noise
	if n == nil {
		if t.Claim.Assumption == NoneHonest {
			return invalid.Field("claim.assumption", "none", "min-honest, unless relays add noise")
		}
		return nil
	}
	if s := t.Slots; s.Padding != PaddingFull || s.Lanes != 1 || s.PerLane != 1 {
		return invalid.Field("noise", n.Kind, "none, unless a client has one slot in one lane, padding full")
	}
	most := uint64(maxWeight)
	if t.Slots.MessageBytes < 7 {
		most = 1 << (8 * t.Slots.MessageBytes)
	}
	if n.Kind == NoiseCells {
		most = min(most, maxCells)
	}
	if err := inRange("noise.cells", n.Cells, 1, most); err != nil {
		return err
	}
	if err := inRange("noise.batches", n.Batches, 0, 1<<32-1); err != nil {
		return err
	}
	switch n.Kind {
	case NoiseCells:
		return n.validateCells()
	case NoisePool:
		if n.Tables != nil || n.Which != nil || n.Tilt != nil || n.Total != nil || n.Rest != nil {
			return invalid.Field("noise", n.Kind, "pool alone, without tables, which, tilt and total")
		}
		return inRange("noise.pool", n.Pool, 1, 1<<32-1)
	}
	return invalid.Field("noise.kind", invalid.Quote(n.Kind), "cells or pool")
}

// validateCells checks that a law of kind cells has its only form, and that its numbers stay below 2⁶³.
func (n *Noise) validateCells() error {
	if n.Pool != 0 {
		return invalid.Field("noise.pool", strconv.FormatUint(n.Pool, 10), "0 for kind cells")
	}
	if count := n.numbers(); count > maxNumbers {
		return invalid.Field("noise", strconv.Itoa(count)+" numbers",
			"at most "+strconv.Itoa(maxNumbers)+" in tables, which and tilt together")
	}
	if len(n.Tables) == 0 {
		return invalid.Field("noise.tables", "none", "at least one table")
	}
	for _, table := range n.Tables {
		if err := validateWeights("noise.tables", table); err != nil {
			return err
		}
	}
	if err := n.validateWhich(); err != nil {
		return err
	}
	if err := n.validateTilt(); err != nil {
		return err
	}
	return n.validateTotal()
}

// numbers returns how many numbers the noise holds in memory.
func (n *Noise) numbers() int {
	count := 2*len(n.Which) + len(n.Tables)
	for _, table := range n.Tables {
		count += len(table)
	}
	if n.Tilt != nil {
		count += len(n.Tilt.Weights) + len(n.Tilt.Factors)
	}
	return count
}

// validateWeights checks a table of weights. The last weight must be above 0, so that each law has only one form.
func validateWeights(field string, table []uint64) error {
	sum := uint64(0)
	for _, weight := range table {
		if weight > maxWeight {
			return invalid.Field(field, strconv.FormatUint(weight, 10), "weights below 2^53")
		}
		sum += weight // cannot overflow unnoticed: each weight is below 2⁵³, and the sum is checked each time
		if sum > math.MaxInt64 {
			return invalid.Field(field, "a sum above 2^63", "a sum of weights below 2^63")
		}
	}
	if len(table) == 0 || table[len(table)-1] == 0 {
		return invalid.Field(field, "no weights, or a last weight of 0", "weights, the last above 0")
	}
	return nil
}

func (n *Noise) validateWhich() error {
	const want = "a run for every stretch of cells with one table, each table in use; no run for 1 table"
	if len(n.Which) == 0 && len(n.Tables) == 1 {
		return nil
	}
	left, used := n.Cells, make([]bool, len(n.Tables))
	for i, run := range n.Which {
		if run.Count == 0 || run.Count > left || run.Table >= uint64(len(used)) || i > 0 &&
			n.Which[i-1].Table == run.Table {
			return invalid.Field("noise.which", "run "+strconv.Itoa(i), want)
		}
		left -= run.Count
		used[run.Table] = true
	}
	if left != 0 || len(n.Which) < 2 {
		return invalid.Field("noise.which", strconv.FormatUint(n.Cells-left, 10)+" cells", want)
	}
	for table, is := range used {
		if !is {
			return invalid.Field("noise.which", "table "+strconv.Itoa(table)+" unused", want)
		}
	}
	return nil
}

// Each calls f for every run of cells that use the same table. first is the index of the run's first cell.
func (n *Noise) Each(f func(first uint64, run Run)) {
	if len(n.Which) == 0 {
		f(0, Run{Count: n.Cells})
		return
	}
	first := uint64(0)
	for _, run := range n.Which {
		f(first, run)
		first += run.Count
	}
}

func (n *Noise) validateTilt() error {
	if n.Tilt == nil {
		return nil
	}
	if uint64(len(n.Tilt.Weights)) != n.Cells {
		return invalid.Field("noise.tilt.weights", strconv.Itoa(len(n.Tilt.Weights))+" weights",
			"one for each of "+strconv.FormatUint(n.Cells, 10)+" cells")
	}
	if err := validateWeights("noise.tilt.factors", n.Tilt.Factors); err != nil {
		return err
	}
	if err := inRange("noise.tilt.centre", n.Tilt.Centre, 0, maxWeight); err != nil {
		return err
	}
	if err := inRange("noise.tilt.zero", n.Tilt.Zero, 0, maxWeight); err != nil {
		return err
	}
	sum, over := n.Tilt.Centre, false
	n.Each(func(first uint64, run Run) {
		most := uint64(len(n.Tables[run.Table]) - 1)
		for _, weight := range n.Tilt.Weights[first : first+run.Count] {
			hi, lo := bits.Mul64(max(weight, n.Tilt.Zero), most)
			sum += lo
			over = over || weight > maxWeight || hi > 0 || lo > math.MaxInt64 || sum > math.MaxInt64
		}
	})
	if over {
		return invalid.Field("noise.tilt.weights", "weights too large",
			"weights below 2^53, and times all dummies, with the centre, below 2^63")
	}
	return nil
}

// validateTotal checks that some draw from the tables has the total.
func (n *Noise) validateTotal() error {
	if n.Rest != nil {
		return n.validateRest()
	}
	if n.Total == nil {
		return nil
	}
	least, most := n.tablesAllow()
	return inRange("noise.total", *n.Total, least, most)
}

// validateRest checks that a cell can get what the others leave of the total. The others share one table.
func (n *Noise) validateRest() error {
	switch {
	case n.Total == nil || n.Tilt != nil || len(n.Tables) != 1:
		return invalid.Field("noise.rest", strconv.FormatUint(*n.Rest, 10), "none, unless there are a total, one table "+
			"and no tilt")
	case n.Cells < 3:
		return invalid.Field("noise.rest", strconv.FormatUint(*n.Rest, 10), "none for two cells: a total alone")
	}
	if err := inRange("noise.rest", *n.Rest, 0, n.Cells-1); err != nil {
		return err
	}
	least, _ := n.tablesAllow()
	return inRange("noise.total", *n.Total, least-least/n.Cells, maxCells<<16)
}

// Support returns the smallest and the largest number of dummies that one relay can add to one batch.
func (n *Noise) Support() (least, most uint64) {
	switch {
	case n.Kind == NoisePool:
		return n.Pool, n.Pool
	case n.Total != nil:
		return *n.Total, *n.Total
	}
	return n.tablesAllow()
}

// tablesAllow returns the smallest and the largest number of dummies that the tables allow, without the total. Both are
// below 2²⁰ cells times 2¹⁶.
func (n *Noise) tablesAllow() (least, most uint64) {
	n.Each(func(_ uint64, run Run) {
		table := n.Tables[run.Table]
		low := 0
		for table[low] == 0 {
			low++
		}
		least += run.Count * uint64(low)
		most += run.Count * uint64(len(table)-1)
	})
	return least, most
}

// maxBatches is the largest number of batches of an epoch, for any task. A site with 10⁷ reports a day and n = 1,000
// makes 10⁴ batches. A site with more than 6.5·10⁷ reports needs a larger n or shorter epochs.
const maxBatches = 1 << 16

// SaysBatches reports whether the task itself limits the batches of an epoch.
func (t *Task) SaysBatches() bool { return t.Noise != nil && t.Noise.Batches > 0 }

// MostBatches returns the largest number of batches that an epoch may have.
func (t *Task) MostBatches() uint64 {
	if !t.SaysBatches() {
		return maxBatches
	}
	return min(t.Noise.Batches, maxBatches)
}

// HasBatch reports whether an epoch may have a batch with this number, counted from 0.
func (t *Task) HasBatch(seq uint64) bool { return seq < t.MostBatches() }

// CheckSupported returns an error for a task or draft with a part that the format defines but no party supports yet. A
// party that accepted such a task would not do what the task promises.
func (t *Task) CheckSupported() error {
	if t.Stream == nil {
		return nil
	}
	for _, name := range t.Stream.Allow {
		if !oneOf(name, t.Stream.Lossless()...) {
			return invalid.Field("stream.allow", invalid.Quote(name), "none: not supported yet")
		}
	}
	return nil
}

// Lossless returns the parts of a task that do not affect the privacy loss. Today, a later task of a stream may change
// only these. For any other part, somebody would have to compare the losses of the changed task and of the first task.
// In "relays.signKey", pages name the keys of relays that may replace another relay.
func (*StreamPosition) Lossless() []string {
	return []string{"clients.issuer.url", "clients.origins", "clients.quota", "name", "relays.signKey", "relays.url",
		"verifier.url"}
}
