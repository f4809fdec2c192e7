package main

import (
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// vital is a task of the web-vitals example (www/examples/web-vitals).
type vital struct {
	name  string
	query planner.Query
	words words
	value func(r *rand.Rand) float64 // Returns the value of a simulated visit.
}

// vitals are the tasks of the example. One is a histogram of the largest contentful paint, with bin edges at Google's
// thresholds of 2.5 s and 4 s. The other is the mean cumulative layout shift. The simulated distributions are invented:
// log-normal with median 1.7 s, and exponential with mean 0.07.
var vitals = []vital{
	{"lcp", planner.Query{Name: "largest contentful paint", Query: task.Histogram, Hi: 6000, Bins: 12},
		words{Title: "Largest contentful paint", Unit: "ms", Measure: "visits by largest contentful paint",
			AnswerUnit: "visits", Axis: "largest contentful paint (ms)"},
		func(r *rand.Rand) float64 { return 1700 * math.Exp(0.6*r.NormFloat64()) }},
	{"cls", planner.Query{Name: "cumulative layout shift", Query: task.Mean, Hi: 1},
		words{Title: "Cumulative layout shift", Measure: "mean cumulative layout shift"},
		func(r *rand.Rand) float64 { return 0.07 * r.ExpFloat64() }},
}

// A visitor reports once a day for a week. The quota allows several visitors from one network.
const (
	vitalsQuota  = 8
	vitalsBatch  = 1000
	vitalsEpoch  = 24 * 3600 // seconds
	vitalsEpochs = 7
)

func (v *vital) draft(now uint64) (quickstart.Draft, error) {
	q := v.query
	q.Clip, q.Batch, q.Honest, q.Epsilon, q.Delta = true, vitalsBatch, 0.9, 1, 1e-6
	q.Relays = &planner.RelayNoise{} // Clients that randomize could not replace a provisional value.
	t, err := planner.Draft(q)
	if err != nil {
		return quickstart.Draft{}, err
	}
	t.Clients.Quota = vitalsQuota
	t.Epochs = task.Epochs{Start: now, Length: vitalsEpoch, Count: vitalsEpochs}
	return quickstart.Draft{Name: v.name, Task: t}, nil
}

func (v *vital) pageTask(r *simulatedTask) *pageTask {
	w := v.words
	w.Entries = verifier.Labels(r.Open.Task)
	random := rand.New(rand.NewPCG(1, 2)) // play draws while it holds the task's lock
	return newPageTask(r, w, func(int) []float64 { return []float64{v.value(random)} })
}
