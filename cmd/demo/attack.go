package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// attackBatch is the batch size in the n−1 attack: one victim and 999 clients of the attacker.
const attackBatch = 1000

// attack is a deployment with one honest client and one honest relay. The attacker knows everything that the verifier
// and all other relays know. As other relays would not protect the client, the tasks have the honest relay only. In one
// task the clients add the noise, in the other the relay.
type attack struct {
	mu    sync.Mutex // allows one play at a time
	kinds []*surrounded
}

// surrounded is a task in which the attacker controls all clients of each batch but one.
type surrounded struct {
	noise  string // clients or relays
	task   *simulatedTask
	verify *handover.Requester
	opener *onion.Opener
	sealer *onion.Sealer
	next   uint64 // Number of the next batch.
}

// sight is what the attacker sees of one batch and concludes from it.
type sight struct {
	Noise  string `json:"noise"`  // Who adds the noise: clients or relays.
	Answer int    `json:"answer"` // The victim's answer: 0 for no, 1 for yes.
	Known  uint64 `json:"known"`  // Number of the attacker's clients.
	// Number of messages per answer, without the attacker's own: the victim's message and dummies.
	Left      [2]uint64 `json:"left"`
	Guess     int       `json:"guess"`
	Certainty float64   `json:"certainty"` // Probability that the guess is right if both answers are equally likely.
	Epsilon   float64   `json:"epsilon"`   // The task's ε.
	NoHonest  *float64  `json:"epsilon_no_honest"`
	Most      float64   `json:"most"` // The largest certainty that ε′ allows, except with probability δ.
}

// startAttack writes the deployment to dir and starts its relay.
func (w *world) startAttack(ctx context.Context, dir string) (*attack, error) {
	drafts, err := attackDrafts()
	if err != nil {
		return nil, err
	}
	listeners, relays, err := listen(1)
	if err != nil {
		return nil, err
	}
	d, err := quickstart.Write(dir, relays, drafts)
	if err != nil {
		return nil, err
	}
	if err := w.StartRelays(d, listeners); err != nil {
		return nil, err
	}
	sign, err := keyfile.LoadSign(d.VerifierSign())
	if err != nil {
		return nil, err
	}
	a := &attack{}
	for i, draft := range drafts {
		s, err := surround(ctx, d, i, draft.Name, sign)
		if err != nil {
			return nil, err
		}
		a.kinds = append(a.kinds, s)
	}
	return a, nil
}

// attackDrafts returns two yes-or-no tasks with the same ε and δ, with noise by clients and by the relay.
func attackDrafts() (drafts []quickstart.Draft, err error) {
	for _, kind := range []struct {
		noise  string
		relays *planner.RelayNoise
	}{{"clients", nil}, {"relays", &planner.RelayNoise{}}} {
		t, err := planner.Draft(planner.Query{Name: "noise by " + kind.noise, Query: task.Histogram, Bins: 2,
			Labels: true,
			Batch:  attackBatch, Honest: .9, Epsilon: 1, Delta: 1e-6, Relays: kind.relays})
		if err != nil {
			return nil, err
		}
		t.Epochs = task.Epochs{Start: uint64(time.Now().Unix()), Length: 24 * 3600, Count: 1}
		drafts = append(drafts, quickstart.Draft{Name: kind.noise, Task: t})
	}
	return drafts, nil
}

// surround connects to a task as the attacker does. The attacker has the verifier's key of epoch 0 and can send the
// relay reports of any client.
func surround(ctx context.Context, d *quickstart.Deployment, i int, name string, sign ed25519.PrivateKey) (*surrounded,
	error) {
	t, err := quickstart.Connect(ctx, d, i)
	if err != nil {
		return nil, err
	}
	keys, err := keyfile.LoadHPKE(d.VerifierKeys(name))
	if err != nil {
		return nil, err
	}
	key, err := keys.Key(0)
	if err != nil {
		return nil, err
	}
	s := &surrounded{noise: name, task: &simulatedTask{t}, verify: handover.NewRequester(sign, nil)}
	if s.opener, err = onion.NewOpener(t.Open.Task, t.Open.ID, t.Open.VerifierHop(), 0, key); err != nil {
		return nil, err
	}
	s.sealer, err = onion.NewSealer(t.Open.Task, t.Open.ID, t.Open.KeyLists)
	return s, err
}

// play runs both tasks on a victim's answer, 0 or 1, each with a batch of its own.
func (a *attack) play(ctx context.Context, answer int) (out []*sight, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.kinds {
		saw, err := s.play(ctx, answer)
		if err != nil {
			return nil, fmt.Errorf("couldn't attack the task with noise by %s: %w", s.noise, err)
		}
		out = append(out, saw)
	}
	return out, nil
}

func (s *surrounded) play(ctx context.Context, answer int) (*sight, error) {
	t := s.task.Open.Task
	if err := inParallel(ctx, attackBatch, func(ctx context.Context, i int) error {
		if i == 0 {
			return s.task.report(ctx, 0, []float64{float64(answer)})
		}
		return s.known(ctx, i%2)
	}); err != nil {
		return nil, err
	}
	left, err := s.countLeft(ctx)
	if err != nil {
		return nil, err
	}
	for i := 1; i < attackBatch; i++ {
		left[i%2]--
	}
	saw := &sight{Noise: s.noise, Answer: answer, Known: attackBatch - 1, Left: left, Epsilon: t.Claim.Epsilon.Value()}
	return saw, saw.guess(t)
}

// known sends a report of one of the attacker's clients. It holds the true answer without noise.
func (s *surrounded) known(ctx context.Context, answer int) error {
	message := make([]byte, s.task.Open.Slots.MessageBytes)
	message[len(message)-1] = byte(answer)
	body, err := s.sealer.Seal(0, [][]task.Message{{{Body: message}}})
	if err != nil {
		return err
	}
	return s.task.submit(ctx, &shufflerclient.Report{Body: body})
}

// countLeft pulls the next batch as the verifier does, and counts its messages per answer without the attacker's own.
func (s *surrounded) countLeft(ctx context.Context) (left [2]uint64, err error) {
	b, err := s.pull(ctx)
	if err != nil {
		return left, err
	}
	s.next++
	for _, slot := range b.Ciphertexts[0] {
		_, m, err := s.opener.OpenMessage(0, slot)
		if err != nil {
			return left, err
		}
		left[m.Body[len(m.Body)-1]&1]++
	}
	return left, nil
}

func (s *surrounded) pull(ctx context.Context) (*onion.Batch, error) {
	hop := s.task.Open.VerifierHop() - 1
	for {
		b, err := s.verify.Pull(ctx, s.task.Open, hop, 0, s.next)
		if err == nil {
			return b, s.verify.Confirm(ctx, s.task.Open, hop, 0, s.next, b.Manifest)
		}
		if !errors.Is(err, handover.ErrNotSealed) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(quickstart.Pull):
		}
	}
}

// guess chooses the more likely answer of the victim and computes how certain it is.
func (s *sight) guess(t *task.Task) error {
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	no, yes := s.likelihood(t, 0), s.likelihood(t, 1)
	if yes > no {
		s.Guess = 1
	}
	s.Certainty, s.Most = max(no, yes)/(no+yes), 1
	if s.NoHonest, _ = verifier.WorstCaseEpsilons(t, m); s.NoHonest != nil {
		s.Most = 1 / (1 + math.Exp(-*s.NoHonest))
	}
	return nil
}

// likelihood returns a number proportional to the probability that the batch leaves these messages if the victim gave
// this answer. The relay draws the dummies of both answers from one table.
func (s *sight) likelihood(t *task.Task, answer int) float64 {
	if t.Noise == nil { // only the victim's message remains, drawn by randomized response
		gamma, _ := t.Param("gamma")
		other := gamma.Float64() / 2
		if s.Left[answer] == 1 {
			return 1 - other
		}
		return other
	}
	p := 1.0
	for cell, z := range s.Left {
		if cell == answer {
			if z == 0 {
				return 0
			}
			z--
		}
		if z >= uint64(len(t.Noise.Tables[0])) {
			return 0
		}
		p *= float64(t.Noise.Tables[0][z])
	}
	return p
}

var answers = [2]string{"no", "yes"}

func printSights(w io.Writer, sights []*sight) error {
	fmt.Fprintf(w, "\nNobody else is honest: the attacker controls %d of %d clients, the verifier and all "+
		"relays but one.\n"+
		"Two tasks guarantee ε = %g. The victim answers %s to both.\n", sights[0].Known, sights[0].Known+1,
		sights[0].Epsilon,
		answers[sights[0].Answer])
	for _, s := range sights {
		left := "no protection remains"
		if s.NoHonest != nil {
			left = fmt.Sprintf("ε′ = %.3g remains, which allows at most %.0f %%", *s.NoHonest, 100*s.Most)
		}
		_, err := fmt.Fprintf(w, "  noise by %s: besides its own messages, the attacker sees %d no and %d yes. It guesses %s, "+
			"%.0f %% sure; %s.\n",
			s.Noise, s.Left[0], s.Left[1], answers[s.Guess], 100*s.Certainty, left)
		if err != nil {
			return err
		}
	}
	return nil
}

// serve runs the attack on the answer in a request and writes what the attacker saw as JSON.
func (a *attack) serve(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Answer int `json:"answer"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1024)).Decode(&ask)
	if err != nil || ask.Answer != 0 && ask.Answer != 1 {
		problem.New(problem.Malformed, `want {"answer": 0 or 1}`).Write(w)
		return
	}
	sights, err := a.play(r.Context(), ask.Answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(sights)
}
