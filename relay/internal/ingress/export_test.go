package ingress

import "github.com/doona-dp/doona/relay/internal/store"

// GroupOrder puts submissions 0, 1, … n-1 into an ingress's queue and returns the order in which the ingress stores
// them.
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

// EndQueue ends an ingress's queue while a submission is in it. It returns the answer to that submission, and whether
// the queue accepts a later one.
func EndQueue(in *Ingress) (waiting <-chan bool, late bool) {
	p := &pending{&store.Submission{}, make(chan bool, 1)}
	in.hand(p)
	in.endQueue()
	return p.done, in.hand(p)
}
