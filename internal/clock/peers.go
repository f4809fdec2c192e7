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

// SetPeers sets the neighbours whose clocks the guard asks for: the relays and issuers of tasks, each once. It leaves
// out this party, which has the keys in own. It drops former neighbours and their words. The guard asks by the newest
// task, then by an earlier one, since not every party has the newest yet. If SetPeers is called before [Guard.Watch],
// the guard waits for the neighbours' first answers, or silence.
//
// Places belong to one party if they share a key, a key and its replacement, or a host and port. A party that counted
// as two could outvote this machine's clock. Two parties that count as one only make the time doubtful for longer.
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

// place is a party's position in a task.
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

// host returns the host of the party's URL, with the port if it is not the scheme's default.
func (p place) host() string {
	at := p.open.TimeURL(p.hop)
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	usual := map[string]string{"https": ":443", "http": ":80"}
	return strings.TrimSuffix(u.Host, usual[u.Scheme])
}

// placesOf returns the places of all parties that tell their time in tasks, those of the newest task first.
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

// askedBy is by how many of its tasks a neighbour is asked until one answers.
const askedBy = 2

// peersOf returns the neighbours of the party with keys own in tasks.
func peersOf(client *handover.Client, own []task.SignKey, tasks []*taskfile.Open) (met []neighbour) {
	all := placesOf(tasks)
	one := parties{}
	for _, p := range all {
		one.join(keyTrait(p.key()), hostTrait(p.host()))
		if p.open.Stream == nil {
			continue
		}
		for _, rotation := range p.open.Stream.Rotations {
			one.join(keyTrait(rotation.Old), keyTrait(rotation.New))
		}
	}
	here := map[trait]bool{}
	for _, key := range own {
		here[one.of(keyTrait(key))] = true
	}
	at := map[trait]int{} // each party's index in met
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

// add adds a place after newer ones, unless those are of enough tasks.
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

// trait is a key, or a host and port, that identifies a party.
type trait struct {
	key  task.SignKey
	host string
}

func keyTrait(key task.SignKey) trait { return trait{key: key} }
func hostTrait(host string) trait     { return trait{host: host} }

// parties is a union-find structure over traits. Each set is one party. A trait points to another one of its set, and
// finally to the set's representative.
type parties map[trait]trait

// of returns the representative of a trait's party.
func (p parties) of(t trait) trait {
	for next, ok := p[t]; ok; next, ok = p[t] {
		t = next
	}
	return t
}

// join merges the parties of two traits.
func (p parties) join(a, b trait) {
	if a, b = p.of(a), p.of(b); a != b {
		p[a] = b
	}
}
