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

// SetPeers sets the peers whose clocks the guard asks for: the relays and issuers of tasks, each once, except this
// party, which has the keys in own. It drops the answers of former peers. The guard asks a peer by its newest task,
// then by an earlier one, because not every peer has the newest task yet. If SetPeers is called before [Guard.Watch],
// the guard waits until each peer has answered once or failed to.
//
// Routes belong to one party if they share a key, a key and its replacement, or a host and port. If one party counted
// as two, it could outvote this machine's clock. If two parties count as one, the time only stays in doubt for longer.
func (g *Guard) SetPeers(client *handover.Requester, own []task.SignKey, tasks ...*taskfile.Open) {
	peers := peersOf(client, own, tasks)
	names := make([]string, len(peers))
	for i, n := range peers {
		names[i] = n.name
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peers = peers
	gone := func(name string) bool { return !slices.Contains(names, name) }
	maps.DeleteFunc(g.answers, func(name string, _ answer) bool { return gone(name) })
	maps.DeleteFunc(g.differing, func(name string, _ bool) bool { return gone(name) })
	if g.watching {
		g.names = names
		maps.DeleteFunc(g.pending, func(name string, _ bool) bool { return gone(name) })
		return
	}
	g.waitFor(names)
}

// route is one way to ask a party for its clock: by a task and the party's hop in it.
type route struct {
	open *taskfile.Open
	hop  int
}

func (r route) key() task.SignKey {
	if r.hop < len(r.open.Relays) {
		return r.open.Relays[r.hop].SignKey
	}
	return r.open.Clients.Issuer.SignKey
}

// host returns the host of the party's URL, with the port if it is not the scheme's default.
func (r route) host() string {
	raw := r.open.TimeURL(r.hop)
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	defaultPort := map[string]string{"https": ":443", "http": ":80"}
	return strings.TrimSuffix(u.Host, defaultPort[u.Scheme])
}

// routesOf returns the routes to all relays and issuers of tasks, those by the newest task first.
func routesOf(tasks []*taskfile.Open) (all []route) {
	for _, open := range slices.Backward(tasks) {
		for hop := range open.Relays {
			all = append(all, route{open, hop})
		}
		if open.Clients.Kind == task.ClientToken {
			all = append(all, route{open, open.VerifierHop() + 1})
		}
	}
	return all
}

// maxTasks is by how many of a peer's tasks the guard asks it, the newest first.
const maxTasks = 2

// peersOf returns the peers in tasks of the party with keys own.
func peersOf(client *handover.Requester, own []task.SignKey, tasks []*taskfile.Open) (peers []peer) {
	all := routesOf(tasks)
	found := parties{}
	for _, r := range all {
		found.join(keyTrait(r.key()), hostTrait(r.host()))
		if r.open.Stream == nil {
			continue
		}
		for _, rotation := range r.open.Stream.Rotations {
			found.join(keyTrait(rotation.Old), keyTrait(rotation.New))
		}
	}
	ours := map[trait]bool{}
	for _, key := range own {
		ours[found.representative(keyTrait(key))] = true
	}
	at := map[trait]int{} // by party: its index in peers
	for _, r := range all {
		party := found.representative(keyTrait(r.key()))
		if ours[party] {
			continue
		}
		i, known := at[party]
		if !known {
			i, at[party] = len(peers), len(peers)
			peers = append(peers, peer{name: r.host(), client: client})
		}
		peers[i].add(r)
	}
	return peers
}

// add adds a route, unless the peer already has routes by maxTasks other tasks.
func (n *peer) add(r route) {
	tasks := map[task.ID]bool{r.open.ID: true}
	for _, earlier := range n.routes {
		tasks[earlier.open.ID] = true
	}
	if len(tasks) <= maxTasks {
		n.routes = append(n.routes, r)
		n.id += r.open.ID.String() + "/" + strconv.Itoa(r.hop) + " "
	}
}

// trait is a key, or a host and port, that identifies a party.
type trait struct {
	key  task.SignKey
	host string
}

func keyTrait(key task.SignKey) trait { return trait{key: key} }
func hostTrait(host string) trait     { return trait{host: host} }

// parties is a union-find structure over traits, in which each set is one party. It maps a trait to another one of its
// set; the last trait of such a chain is the set's representative.
type parties map[trait]trait

// representative returns the trait that stands for t's party.
func (p parties) representative(t trait) trait {
	for next, ok := p[t]; ok; next, ok = p[t] {
		t = next
	}
	return t
}

// join records that two traits belong to one party.
func (p parties) join(a, b trait) {
	if a, b = p.representative(a), p.representative(b); a != b {
		p[a] = b
	}
}
