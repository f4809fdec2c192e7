// Command bare is a minimal server that stores reports durably. The bench uses it as the limit for the relay.
//
// It uses the relay's HTTP server, opens each body once, and stores values of the same sizes as a relay. It checks no
// client, no replay and no epoch, does not encrypt its store, and never seals or merges batches. As in a relay, waiting
// reports share a transaction, whose slots are one value. In SQLite their tags and client names are one value, too;
// PostgreSQL needs one round trip per transaction.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/taskfile"
)

func main() {
	bundle := flag.String("bundle", "", "the task's bundle")
	keys := flag.String("keys", "", "file of the first relay's HPKE keys")
	store := flag.String("store", "", "sqlite:PATH or postgres://…")
	listen := flag.String("listen", "", "address for reports")
	admin := flag.String("admin", "", "address of /readyz")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bundle, *keys, *store, *listen, *admin); err != nil {
		log.Fatal("bare: ", err)
	}
}

func run(ctx context.Context, bundle, keys, store, listen, admin string) error {
	opener, err := openerOf(bundle, keys)
	if err != nil {
		return err
	}
	insert, err := open(ctx, store)
	if err != nil {
		return err
	}
	s := &server{opener: opener, queue: make(chan *openedReport, 1024)}
	go s.commitLoop(insert)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+endpoint.ReportsPath, s.take)
	servers, err := service.Listen(slog.Default(), service.Timing{},
		service.Endpoint{Address: listen, Handler: mux},
		service.Endpoint{Address: admin,
			Handler: http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			})})
	if err != nil {
		return err
	}
	return service.Serve(ctx, servers)
}

func openerOf(bundle, keys string) (*onion.Opener, error) {
	task, err := taskfile.LoadBundle(bundle)
	if err != nil {
		return nil, err
	}
	file, err := keyfile.LoadHPKE(keys)
	if err != nil {
		return nil, err
	}
	key, err := file.Key(0)
	if err != nil {
		return nil, err
	}
	return onion.NewOpener(task.Task, task.ID, 0, 0, key)
}

// openedReport is an opened envelope that waits to be stored. done receives the result of its transaction.
type openedReport struct {
	slots [][]byte
	done  chan error
}

type server struct {
	opener *onion.Opener
	queue  chan *openedReport
}

func (s *server) take(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(s.opener.MaxBody())))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	envelope, err := s.opener.OpenEnvelope(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := &openedReport{done: make(chan error, 1)}
	for _, lane := range envelope.Lanes {
		r.slots = append(r.slots, lane...)
	}
	s.queue <- r
	if err := <-r.done; err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// commitLoop stores reports. One transaction holds all reports that queued up during the previous one, at most 1,024.
func (s *server) commitLoop(insert inserter) {
	for first := range s.queue {
		// As the relay does, let handlers add reports until the queue stops growing.
		for waiting := -1; waiting < len(s.queue) && len(s.queue) < 1024; {
			waiting = len(s.queue)
			runtime.Gosched()
		}
		group := []*openedReport{first}
		for more := true; more && len(group) < 1024; {
			select {
			case r := <-s.queue:
				group = append(group, r)
			default:
				more = false
			}
		}
		err := insert(rowsOf(group))
		for _, r := range group {
			r.done <- err
		}
	}
}

// The sizes, in bytes, of the values that a relay stores per report (relay/internal/store).
const (
	sizeTag    = 16     // PostgreSQL: hash of the tag, and the receipt
	sizeClient = 8      // PostgreSQL: hash of the client
	sizeName   = 20     // SQLite: tag, receipt and client together
	sizeLane   = 2      // lane number before each slot
	sizeRun    = 4 + 28 // per value that holds many slots: header, and the overhead of encryption
)

// rows is the content of one transaction: the number of reports and their slots, after random bytes in place of a
// header.
type rows struct {
	reports int
	slots   []byte
}

func rowsOf(group []*openedReport) *rows {
	r := &rows{len(group), random(sizeRun)}
	for _, report := range group {
		for _, slot := range report.slots {
			r.slots = append(append(r.slots, make([]byte, sizeLane)...), slot...)
		}
	}
	return r
}

// inserter stores rows in one durable transaction.
type inserter func(*rows) error

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func open(ctx context.Context, store string) (inserter, error) {
	if path, ok := strings.CutPrefix(store, "sqlite:"); ok {
		return openSQLite(path)
	}
	if strings.HasPrefix(store, "postgres:") {
		return openPostgres(ctx, store)
	}
	return nil, fmt.Errorf("couldn't open the store %q: want sqlite:PATH or postgres://…", store)
}
