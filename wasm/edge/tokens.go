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

// poolSize is how many unused tokens an instance keeps per task. A report spends a random one, and new ones are issued
// later. So the time of issue says little about the time of use.
const poolSize = 4

// tokensPerReport is the most tokens issued for one report: one to spend and one for the pool. So n reports of an
// instance in an epoch cost at most n + poolSize tokens, unless the issuer fails.
const tokensPerReport = 2

// issuing limits the retries for one token to 2 s in total.
const issuing = 2 * time.Second

// pool holds unspent tokens of one task's latest epoch. Its zero value is empty.
type pool struct {
	mu     sync.Mutex // no goroutine waits while it holds mu
	epoch  uint64
	tokens [][]byte
	coming int // tokens requested but not yet received
}

// take removes and returns a random token of an epoch, or nil if there is none.
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

// reserve makes room in the pool for one more token of an epoch, and drops tokens of earlier epochs. It returns false
// if the pool is full. After true, the caller must call put.
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

// put stores a token in reserved space; nil frees the space.
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

// pool returns the pool of a task, which it creates if needed.
func (w *Worker) pool(name string) *pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pools[name] == nil {
		w.pools[name] = &pool{}
	}
	return w.pools[name]
}

// token returns a token from the pool or the issuer, or nil if the task needs none, and how many it asked the issuer
// for.
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

// refill asks the issuer for up to most tokens for the pool. It stops at the first error; the next report tries again.
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

// issuerTokens asks the issuer with the site's API key. The issuer limits tokens per account. So each token request
// names its own account, which is derived from the request and stays the same in a retry.
func issuerTokens(client shufflerclient.HTTP, key string) shufflerclient.TokenSource {
	return func(ctx context.Context, uri string, request []byte) ([]byte, error) {
		account := sha256.Sum256(request) // the token request is blinded, so it is uniformly random
		header := http.Header{
			"Authorization": {"Bearer " + key},
			"Doona-Account": {hex.EncodeToString(account[:16])},
		}
		return shufflerclient.IssuerTokens(client, header)(ctx, uri, request)
	}
}
