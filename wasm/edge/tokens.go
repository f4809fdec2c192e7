package edge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
)

// poolSize is how many tokens an instance holds ahead for a task. A report spends one of them at
// random and others are issued afterwards: when a token was issued says little of when it is spent.
const poolSize = 4

// tokensPerReport is the most tokens that are issued for one report: its own, and ahead. So n reports of an instance
// in an epoch cost at most n + poolSize, as far as the issuer does not fail.
const tokensPerReport = 2

// issuing bounds the pauses between attempts to get one token.
const issuing = 2 * time.Second

// pool holds unspent tokens of one task's latest epoch. Its zero value is empty.
type pool struct {
	mu     sync.Mutex // never held while waiting
	epoch  uint64
	tokens [][]byte
	coming int // places of tokens that are being issued
}

// take removes and returns a random token of an epoch, or nil.
func (p *pool) take(epoch uint64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != epoch || len(p.tokens) == 0 {
		return nil
	}
	i, last := rand.IntN(len(p.tokens)), len(p.tokens)-1
	token := p.tokens[i]
	p.tokens[i] = p.tokens[last]
	p.tokens = p.tokens[:last]
	return token
}

// reserve keeps a place for another token of an epoch, if there is room, and forgets those of an earlier one. Whoever
// has it calls put.
func (p *pool) reserve(epoch uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch > p.epoch {
		p.epoch, p.tokens, p.coming = epoch, nil, 0
	}
	if epoch < p.epoch || len(p.tokens)+p.coming >= poolSize {
		return false
	}
	p.coming++
	return true
}

// put fills a place that was reserved; with nil, none came.
func (p *pool) put(epoch uint64, token []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch != p.epoch {
		return
	}
	p.coming--
	if token != nil {
		p.tokens = append(p.tokens, token)
	}
}

// pool returns that of a task.
func (w *Worker) pool(name string) *pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pools[name] == nil {
		w.pools[name] = &pool{}
	}
	return w.pools[name]
}

// token returns a token for a report, nil where the task needs none, and how many were issued for that.
func (w *Worker) token(ctx context.Context, v *visit) (token []byte, issued int, err error) {
	if v.client.Task().Clients.Kind != task.ClientToken {
		return nil, 0, nil
	}
	if token := w.pool(v.name).take(v.epoch); token != nil {
		return token, 0, nil
	}
	token, err = v.client.Token(deadline{ctx, time.Now().Add(issuing)}, v.epoch)
	return token, 1, err
}

// refill gets up to so many tokens ahead. If the issuer has none now, the next report asks again.
func (w *Worker) refill(ctx context.Context, v *visit, most int) {
	if v.client.Task().Clients.Kind != task.ClientToken {
		return
	}
	for p := w.pool(v.name); most > 0 && p.reserve(v.epoch); most-- {
		token, err := v.client.Token(deadline{ctx, time.Now()}, v.epoch)
		p.put(v.epoch, token)
		if err != nil {
			return
		}
	}
}

// issuerTokens asks the issuer with the site's API key. To an edge worker every request is a client of
// its own, so each is an account of its own: a name drawn with the request, the same when it is
// repeated.
func issuerTokens(client shufflerclient.HTTP, key string) shufflerclient.TokenSource {
	return func(ctx context.Context, uri string, request []byte) ([]byte, error) {
		account := sha256.Sum256(request) // the request is blinded: uniformly random
		header := http.Header{
			"Authorization": {"Bearer " + key},
			"Doona-Account": {hex.EncodeToString(account[:16])},
		}
		return shufflerclient.IssuerTokens(client, header)(ctx, uri, request)
	}
}
