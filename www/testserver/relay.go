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
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// relay answers clients like a first relay. It opens their submissions with the keys of all hops.
type relay struct {
	tasks map[string]*scenario // by path

	mu       sync.Mutex // guards the fields below
	received []submission
	failures []problem.Name    // the answers to the next submissions
	variants map[string][]byte // the stream's valid and invalid variants
	variant  string            // the variant that is served
	fetches  int               // of the stream, since variant was set
	years    years             // a stream with successors
}

// submission is an arrived body, its messages or the error of opening it, and the relay's answer.
type submission struct {
	Path     string              `json:"path"`
	Epoch    uint64              `json:"epoch"`
	Body     string              `json:"body"` // hexadecimal
	Answer   problem.Name        `json:"answer"`
	Messages [][]string          `json:"messages"` // by lane, hexadecimal; "" for a cover
	Error    string              `json:"error"`
	Header   map[string][]string `json:"header"`
}

// stall means no answer at all, and stallBody an answer whose body never ends.
const (
	stall     problem.Name = "stall"
	stallBody problem.Name = "stall-body"
)

// hostile has answers that no honest relay sends, by the name with which a test asks for them: a problem name that
// attacks pages and terminals, and a known problem of 8 MiB.
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
	mux.HandleFunc("GET "+endpoint.StreamPath, r.serveStream)
	mux.HandleFunc("POST "+endpoint.ReportsPath, r.receive)
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
	s := r.tasks[req.URL.Path]
	if s == nil {
		problem.New(problem.UnknownTask, "").Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/msgpack")
	w.Write(s.bundle)
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
	lanes, err := s.Open(epoch, body)
	if kind := req.Header.Get("Content-Type"); err == nil && kind != "" {
		err = fmt.Errorf("content type %s, which costs a preflight", kind)
	}
	if err != nil {
		sub.Error = err.Error()
	}
	sub.Messages = texts(lanes)
	if err == nil {
		r.years.note(s, epoch, body)
	}
	if name := r.record(&sub); name == stall {
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

// record records a submission and returns the problem to answer it with, or "".
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

// take returns the received submissions and forgets them.
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

// fail sets the answers to the next submissions: a JSON array of problem names.
func (r *relay) fail(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.NewDecoder(req.Body).Decode(&r.failures); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
