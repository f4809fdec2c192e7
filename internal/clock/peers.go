package clock

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Meet has the guard ask the relays and issuers of some tasks for their clocks, each once, but not who is here: whose
// keys are own, nor any longer whom it asked before, whose word falls. It asks by the newest task, and by one before
// where that is not answered: not every party has the newest yet. Called before [Guard.Watch], it has the guard wait
// for their first answers, or silence.
//
// Places are one party's that share a key, or a key and one that it was rolled over to, or a host and port. A party
// that counted as two could outvote this machine's clock alone. Two parties that count as one only leave the time in
// doubt for longer.
func (g *Guard) SetPeers(client *handover.Client, own []task.SignKey, tasks ...*taskfile.Open) {
	met := peersOf(client, own, tasks)
	names := make([]string, len(met))
	for i, n := range met {
		names[i] = n.name
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.neighbours = met
	gone := func(name string) bool { return !slices.Contains(names, name) }
	maps.DeleteFunc(g.words, func(name string, _ word) bool { return gone(name) })
	maps.DeleteFunc(g.off, func(name string, _ bool) bool { return gone(name) })
	if g.watching {
		g.known = names
		maps.DeleteFunc(g.pending, func(name string, _ bool) bool { return gone(name) })
		return
	}
	g.waitFor(names)
}

// place is a party's place in a task.
type place struct {
	open *taskfile.Open
	hop  int
}

// key returns the key that the party signs with.
func (p place) key() task.SignKey {
	if p.hop < len(p.open.Relays) {
		return p.open.Relays[p.hop].SignKey
	}
	return p.open.Clients.Issuer.SignKey
}

// host returns the host of the party's URL, and the port where it is not its scheme's.
func (p place) host() string {
	at := p.open.TimeURL(p.hop)
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	usual := map[string]string{"https": ":443", "http": ":80"}
	return strings.TrimSuffix(u.Host, usual[u.Scheme])
}

// placesOf returns the places of all who tell their time in some tasks, those in the newest task first.
func placesOf(tasks []*taskfile.Open) (all []place) {
	for _, open := range slices.Backward(tasks) {
		for hop := range open.Relays {
			all = append(all, place{open, hop})
		}
		if open.Clients.Kind == task.ClientToken {
			all = append(all, place{open, open.VerifierHop() + 1})
		}
	}
	return all
}

// askedBy is by how many of its tasks a neighbour is asked until one is answered.
const askedBy = 2

// meet returns the neighbours of who has some keys in some tasks.
func peersOf(client *handover.Client, own []task.SignKey, tasks []*taskfile.Open) (met []neighbour) {
	all := placesOf(tasks)
	one := parties{}
	for _, p := range all {
		one.join(keyTrait(p.key()), hostTrait(p.host()))
		if p.open.Stream == nil {
			continue
		}
		for _, roll := range p.open.Stream.Rolls {
			one.join(keyTrait(roll.Old), keyTrait(roll.New))
		}
	}
	here := map[trait]bool{}
	for _, key := range own {
		here[one.of(keyTrait(key))] = true
	}
	at := map[trait]int{} // each party's number in met
	for _, p := range all {
		party := one.of(keyTrait(p.key()))
		if here[party] {
			continue
		}
		i, known := at[party]
		if !known {
			i, at[party] = len(met), len(met)
			met = append(met, neighbour{name: p.host(), client: client})
		}
		met[i].add(p)
	}
	return met
}

// add adds a place behind newer ones, unless those are of enough tasks.
func (n *neighbour) add(p place) {
	tasks := map[task.ID]bool{p.open.ID: true}
	for _, earlier := range n.places {
		tasks[earlier.open.ID] = true
	}
	if len(tasks) <= askedBy {
		n.places = append(n.places, p)
		n.by += p.open.ID.String() + "/" + strconv.Itoa(p.hop) + " "
	}
}

// trait is a key, or a host and port, by which a party is known.
type trait struct {
	key  task.SignKey
	host string
}

func keyTrait(key task.SignKey) trait { return trait{key: key} }
func hostTrait(host string) trait     { return trait{host: host} }

// parties are sets of traits, each of one party: every trait that has been joined leads to another of its set, and at
// last to the one that stands for it.
type parties map[trait]trait

// of returns the trait that stands for a trait's party.
func (p parties) of(t trait) trait {
	for next, ok := p[t]; ok; next, ok = p[t] {
		t = next
	}
	return t
}

// join has two traits be of one party.
func (p parties) join(a, b trait) {
	if a, b = p.of(a), p.of(b); a != b {
		p[a] = b
	}
}
