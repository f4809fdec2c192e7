package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// relay is the fake first relay. It opens the clients' submissions with the keys of all hops.
type relay struct {
	tasks map[string]*scenario // by URL path

	mu       sync.Mutex // guards the fields below
	received []submission
	letters  []letter          // the reports of tasks with events that arrived
	failures []problem.Name    // the answers to the next submissions
	variants map[string][]byte // encoded variants of the stream, valid and invalid, by name
	variant  string            // the name of the variant to serve
	fetches  int               // how often the stream was fetched since variant was set
	years    []*years          // other streams, to which a test adds tasks

	sets map[string]*signedSet // by name
}

// submission is a body that arrived, the messages in it or the error of opening it, and the relay's answer.
type submission struct {
	Path     string              `json:"path"`
	Epoch    uint64              `json:"epoch"`
	Body     string              `json:"body"` // hexadecimal
	Answer   problem.Name        `json:"answer"`
	Messages [][]string          `json:"messages"` // by lane, hexadecimal; "" for a cover
	Tags     []string            `json:"tags"`     // of all layers, hexadecimal
	Error    string              `json:"error"`
	Header   map[string][]string `json:"header"`
}

// With stall, the relay never answers; with stallBody, it answers with a body that never ends.
const (
	stall     problem.Name = "stall"
	stallBody problem.Name = "stall-body"
)

// hostile contains answers that no honest relay sends, by the names with which tests ask for them: a problem name that
// attacks pages and terminals, and a problem document of 8 MiB.
var hostile = map[problem.Name]string{
	"hostile-name": `{"type":"urn:doona:error:<script>alert(1)</script>\u001b[2J\u202e` + strings.Repeat("x", 1000) +
		`"}`,
	"long-answer": `{"type":"urn:doona:error:malformed","detail":"` + strings.Repeat("x", 8<<20) + `"}`,
}

func newRelay(all map[string]*scenario) *relay {
	r := &relay{tasks: map[string]*scenario{}}
	for _, s := range all {
		r.tasks[s.Path()] = s
	}
	return r
}

func (r *relay) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+endpoint.TaskPath, r.serveTask)
	mux.HandleFunc("GET "+endpoint.BlockPath, r.serveTask)
	mux.HandleFunc("GET "+endpoint.StreamPath, r.serveStream)
	mux.HandleFunc("POST "+endpoint.ReportsPath, r.receive)
	mux.HandleFunc("GET "+endpoint.SetPath, r.serveSet)
	mux.HandleFunc("GET "+endpoint.SetKeysPath, r.serveSet)
	mux.HandleFunc("POST "+endpoint.SetReportsPath, r.receiveSet)
	mux.HandleFunc("OPTIONS /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
		w.Header().Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
	})
	return display.ProtectPublic(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		mux.ServeHTTP(w, req)
	}))
}

func (r *relay) serveTask(w http.ResponseWriter, req *http.Request) {
	s := r.tasks[strings.Replace(endpoint.TaskPath, "{task}", req.PathValue("task"), 1)]
	if s == nil {
		problem.New(problem.UnknownTask, "").Write(w)
		return
	}
	block := blockNow(s.SignedTask)
	if i, err := strconv.ParseUint(req.PathValue("block"), 10, 16); err == nil && i*onion.BlockEpochs < s.Epochs.Count {
		block = s.Block(i * onion.BlockEpochs)
	}
	raw, err := s.bundle(block)
	if err != nil {
		problem.New(problem.Malformed, "%v", err).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/msgpack")
	w.Write(raw)
}

func (r *relay) receive(w http.ResponseWriter, req *http.Request) {
	s := r.tasks[strings.Replace(endpoint.TaskPath, "{task}", req.PathValue("task"), 1)]
	epoch, err := strconv.ParseUint(req.PathValue("epoch"), 10, 64)
	if s == nil || err != nil {
		problem.New(problem.UnknownTask, "").Write(w)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		problem.New(problem.Malformed, "%v", err).Write(w)
		return
	}
	sub := submission{Path: s.Path(), Epoch: epoch, Body: hex.EncodeToString(body), Header: req.Header}
	lanes, tags, err := s.OpenAll(epoch, body)
	if kind := req.Header.Get("Content-Type"); err == nil && kind != "" {
		err = fmt.Errorf("content type %s causes a preflight: want none", kind)
	}
	if err == nil {
		err = r.addLetter(s, epoch, body, lanes, tags[0][:])
	}
	if err != nil {
		sub.Error = err.Error()
	}
	sub.Messages = texts(lanes)
	for _, tag := range tags {
		sub.Tags = append(sub.Tags, hex.EncodeToString(tag[:]))
	}
	if err == nil {
		for _, y := range r.years {
			y.note(s, epoch, body)
		}
	}
	answer(w, req, r.record(&sub))
}

// answer accepts a submission, or refuses it by a problem or in the way of a dishonest relay.
func answer(w http.ResponseWriter, req *http.Request, name problem.Name) {
	if name == stall {
		<-req.Context().Done()
		return
	} else if name == stallBody {
		w.Header().Set("Content-Type", problem.ContentType)
		w.WriteHeader(http.StatusServiceUnavailable)
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
		return
	} else if hostile[name] != "" {
		w.Header().Set("Content-Type", problem.ContentType)
		w.Header().Set("Retry-After", "60") // longer than a client waits
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, hostile[name])
		return
	} else if name != "" {
		problem.New(name, "as the test asked").Write(w)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// record stores a submission and returns the problem with which to refuse it; "" to accept it.
func (r *relay) record(sub *submission) problem.Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) > 0 {
		sub.Answer, r.failures = r.failures[0], r.failures[1:]
	}
	r.received = append(r.received, *sub)
	return sub.Answer
}

func texts(lanes [][]task.Message) [][]string {
	out := make([][]string, len(lanes))
	for lane, messages := range lanes {
		for _, m := range messages {
			text := hex.EncodeToString(m.Body)
			if m.Cover {
				text = ""
			}
			out[lane] = append(out[lane], text)
		}
	}
	return out
}

// take answers with the submissions received since the last call, as JSON, and forgets them.
func (r *relay) take(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(append([]submission{}, r.received...)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.received = nil
	w.Write(out.Bytes())
}

// fail sets the answers to the next submissions, one each. The request's body is a JSON array of problem names.
func (r *relay) fail(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.NewDecoder(req.Body).Decode(&r.failures); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
