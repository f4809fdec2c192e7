package ingress

import "github.com/doona-dp/doona/relay/internal/store"

// GroupOrder returns the order in which an ingress stores n submissions that wait in its queue; they were queued as 0,
// 1, …
func GroupOrder(in *Ingress, n int) (order []int) {
	waiting := make([]*pending, n)
	at := map[*pending]int{}
	for i := range waiting {
		waiting[i] = &pending{Submission: &store.Submission{}}
		at[waiting[i]] = i
	}
	for _, p := range waiting[1:] {
		in.queue <- p
	}
	for _, p := range in.gather(waiting[0]) {
		order = append(order, at[p])
	}
	return order
}

// EndQueue ends an ingress's queue while it holds a submission. It returns the verdicts of that submission and of a
// later one.
func EndQueue(in *Ingress) (waiting <-chan bool, late bool) {
	p := &pending{&store.Submission{}, make(chan bool, 1)}
	in.hand(p)
	in.endQueue()
	return p.done, in.hand(p)
}
