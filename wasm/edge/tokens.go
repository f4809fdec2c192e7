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
// random and another is issued afterwards: when a token was issued says little of when it is spent.
const poolSize = 8

// issuing bounds the pauses between attempts to get one token.
const issuing = 2 * time.Second

// pool holds unspent tokens of one task's latest epoch. Its zero value is empty.
type pool struct {
	mu     sync.Mutex // never held while waiting
	epoch  uint64
	tokens [][]byte
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

// put adds a token of an epoch, forgetting those of an earlier one.
func (p *pool) put(epoch uint64, token []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch > p.epoch {
		p.epoch, p.tokens = epoch, nil
	}
	if epoch == p.epoch {
		p.tokens = append(p.tokens, token)
	}
}

// lacks says whether there is room for another token of an epoch.
func (p *pool) lacks(epoch uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return epoch > p.epoch || epoch == p.epoch && len(p.tokens) < poolSize
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

// token returns a token for a report, nil where the task needs none.
func (w *Worker) token(ctx context.Context, name string, client *shufflerclient.Client, epoch uint64) ([]byte, error) {
	if client.Task().Clients.Kind != task.ClientToken {
		return nil, nil
	}
	if token := w.pool(name).take(epoch); token != nil {
		return token, nil
	}
	return client.Token(deadline{ctx, time.Now().Add(issuing)}, epoch)
}

// refill gets up to two tokens ahead, one in place of the one spent. If the issuer has none now, the
// next report asks again.
func (w *Worker) refill(ctx context.Context, name string, client *shufflerclient.Client, epoch uint64) {
	for range 2 {
		if client.Task().Clients.Kind != task.ClientToken || !w.pool(name).lacks(epoch) {
			return
		}
		token, err := client.Token(deadline{ctx, time.Now()}, epoch)
		if err != nil {
			return
		}
		w.pool(name).put(epoch, token)
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
