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

// stockSize is how many unused tokens an instance keeps per task. A report spends a random one, and new ones are issued
// later. So the time of issue says little about the time of use.
const stockSize = 4

// tokensPerReport is the most tokens issued for one report: one to spend and one for the stock. So n reports of an
// instance in an epoch cost at most n + stockSize tokens, unless the issuer fails.
const tokensPerReport = 2

// issuing limits the retries for one token to 2 s in total.
const issuing = 2 * time.Second

// stock holds unspent tokens of one task's latest epoch. Its zero value is empty.
type stock struct {
	mu     sync.Mutex // no goroutine waits while it holds mu
	epoch  uint64
	tokens [][]byte
	coming int // tokens requested but not yet received
}

// take removes and returns a random token of an epoch, or nil if there is none.
func (s *stock) take(epoch uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch || len(s.tokens) == 0 {
		return nil
	}
	i, last := rand.IntN(len(s.tokens)), len(s.tokens)-1
	token := s.tokens[i]
	s.tokens[i] = s.tokens[last]
	s.tokens = s.tokens[:last]
	return token
}

// reserve makes room in the stock for one more token of an epoch, and drops tokens of earlier epochs. It returns false
// if the stock is full. After true, the caller must call put.
func (s *stock) reserve(epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch > s.epoch {
		s.epoch, s.tokens, s.coming = epoch, nil, 0
	}
	if epoch < s.epoch || len(s.tokens)+s.coming >= stockSize {
		return false
	}
	s.coming++
	return true
}

// put stores a token in reserved space; nil frees the space.
func (s *stock) put(epoch uint64, token []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		return
	}
	s.coming--
	if token != nil {
		s.tokens = append(s.tokens, token)
	}
}

// stock returns the stock of a task, which it creates if needed.
func (w *Worker) stock(name string) *stock {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stocks[name] == nil {
		w.stocks[name] = &stock{}
	}
	return w.stocks[name]
}

// token returns a token from the stock or the issuer, or nil if the task needs none, and how many it asked the issuer
// for.
func (w *Worker) token(ctx context.Context, v *visit) (token []byte, issued int, err error) {
	if v.client.Task().Clients.Kind != task.ClientToken {
		return nil, 0, nil
	}
	if token := w.stock(v.name).take(v.epoch); token != nil {
		return token, 0, nil
	}
	token, err = v.client.Token(deadline{ctx, time.Now().Add(issuing)}, v.epoch)
	return token, 1, err
}

// refill asks the issuer for up to most tokens for the stock. It stops at the first error; the next report tries again.
func (w *Worker) refill(ctx context.Context, v *visit, most int) {
	if v.client.Task().Clients.Kind != task.ClientToken {
		return
	}
	for p := w.stock(v.name); most > 0 && p.reserve(v.epoch); most-- {
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
