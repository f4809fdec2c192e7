package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/service"
)

// Limits on wrong passwords.
const (
	freeGuesses  = 4                // wrong passwords of a network before it must wait
	maxPause     = time.Minute      // longest pause between two guesses of a network
	forgetAfter  = 15 * time.Minute // after which a network begins anew
	pauseBuckets = 4096             // memory of pauses; networks with one hash share a pause

	allGuesses = 100             // wrong passwords of all networks together before all must wait
	allRefill  = 6 * time.Second // after which one more is allowed

	maxChecks = 8   // requests that wait for a check, each of which takes all of the hash's memory in turn
	maxKnown  = 256 // networks with their right passwords
)

var errWrongPassword = errors.New("wrong password")

// slowDown says how long to wait before the next password is checked.
type slowDown struct{ wait time.Duration }

func (s *slowDown) Error() string {
	return fmt.Sprintf("too many wrong passwords: try again in %d seconds", s.seconds())
}

func (s *slowDown) seconds() int { return int((s.wait + time.Second - 1) / time.Second) }

// attempts checks passwords and slows guessing down: by the network of the client (/24, /48), and for all networks
// together. Its memory is bounded, and has no addresses: a network is a keyed hash. It is safe for concurrent use.
type attempts struct {
	hash    *passwordHash
	now     func() time.Time
	seed    maphash.Seed
	key     []byte
	waiting chan struct{}

	mu     sync.Mutex // guards the rest, and lets one check at a time use the hash's memory
	pauses [pauseBuckets]pause
	spent  int       // wrong passwords of all networks that are not refilled yet
	refill time.Time // when spent was last reduced

	// known has networks with the password that was right. A program that asks often then costs no argon2, and is not
	// delayed by guesses from elsewhere.
	known map[passwordTag]bool
}

// passwordTag is a keyed hash of a network together with a password.
type passwordTag [sha256.Size]byte

// pause is what the networks of one bucket must wait.
type pause struct {
	wrong int
	until time.Time
}

func newAttempts(hash *passwordHash, now func() time.Time) *attempts {
	a := &attempts{hash: hash, now: now, seed: maphash.MakeSeed(), waiting: make(chan struct{}, maxChecks),
		key: make([]byte, sha256.Size), refill: now(), known: map[passwordTag]bool{}}
	rand.Read(a.key)
	return a
}

// check returns nil for the right password, [errWrongPassword], or a [slowDown] if it did not look at the password.
func (a *attempts) check(from netip.Addr, password string) error {
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		return &slowDown{time.Second}
	}
	network := service.Network(from)
	tag := a.tag(network, password)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	p := &a.pauses[maphash.Comparable(a.seed, network)%pauseBuckets]
	if wait := p.until.Sub(now); wait > 0 {
		return &slowDown{min(wait, maxPause)}
	}
	if a.known[tag] {
		return nil
	}
	if wait := a.waitForAll(now); wait > 0 {
		return &slowDown{wait}
	}
	if len(password) > maxPassword || !a.hash.matches(password) {
		a.spent++
		p.add(now)
		return errWrongPassword
	}
	*p = pause{}
	if len(a.known) >= maxKnown {
		clear(a.known)
	}
	a.known[tag] = true
	return nil
}

func (a *attempts) tag(network netip.Prefix, password string) (tag passwordTag) {
	h := hmac.New(sha256.New, a.key)
	h.Write([]byte(network.String() + "\n" + password))
	h.Sum(tag[:0])
	return tag
}

// waitForAll returns how long every network must wait. The caller holds a.mu.
func (a *attempts) waitForAll(now time.Time) time.Duration {
	if n := now.Sub(a.refill) / allRefill; n < 0 || int64(n) >= int64(a.spent) { // also if the clock was turned back
		a.spent, a.refill = 0, now
	} else {
		a.spent, a.refill = a.spent-int(n), a.refill.Add(n*allRefill)
	}
	if a.spent < allGuesses {
		return 0
	}
	return allRefill - now.Sub(a.refill)
}

// add counts a wrong password. From the fifth on, pauses double.
func (p *pause) add(now time.Time) {
	if now.Sub(p.until) > forgetAfter {
		p.wrong = 0
	}
	p.wrong++
	p.until = now
	if n := p.wrong - freeGuesses; n > 0 {
		p.until = now.Add(min(maxPause, time.Second<<min(n, 10)))
	}
}
