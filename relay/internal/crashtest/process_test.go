package crashtest_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/doona-dp/doona/wire/taskfile"
)

// process is a relay or a verifier. Only one goroutine may call its methods; asking and serving are safe for concurrent
// use.
type process struct {
	name    string
	args    []string // name and arguments of the command in bin
	folder  string   // a relay's files
	address string   // a relay's address, which its proxy dials
	admin   string   // address of a relay's admin pages, or of a verifier's page
	log     string
	hop     int            // for a verifier, the number of relays
	task    *taskfile.Open // a verifier's task; nil for a relay
	world   *world

	cmd     *exec.Cmd
	started time.Time
	serving [kinds]atomic.Int64 // requests to it in progress, by kind
	asking  [kinds]atomic.Int64 // its requests to the upstream relay in progress, by kind
}

// start starts the process and does not wait until it is ready.
func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(bin, p.args[0]), p.args[1:]...)
	p.cmd.Stderr = log
	p.started = time.Now()
	return p.cmd.Start()
}

// errEnded means that a process ended by itself. That is allowed only while its database is unreachable.
var errEnded = errors.New("ended by itself")

// freeze suspends the process and returns once it is suspended.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("%s: %w: %w", p.name, errEnded, err)
	}
	return p.wait(syscall.WUNTRACED)
}

// excused returns err, or nil if the process has ended because its database was unreachable.
func (p *process) excused(err error) error {
	if server := p.world.server; errors.Is(err, errEnded) && server != nil && server.outages.since(p.started) {
		return nil
	}
	return err
}

func (p *process) check() error { return p.wait(syscall.WNOHANG) }

func (p *process) wait(how int) error {
	var status syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, how, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("%s: couldn't wait: %w", p.name, err)
		case pid != 0 && (status.Exited() || status.Signaled()):
			p.cmd = nil
			return fmt.Errorf("%s: %w with status %d", p.name, errEnded, status)
		default:
			return nil
		}
	}
}

func (p *process) up() bool {
	c, err := net.DialTimeout("tcp", p.admin, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.cmd.Wait()
	p.cmd = nil
	return nil
}

func (p *process) end() {
	if p.cmd != nil {
		p.kill()
	}
}

// outages records when a database was unreachable: from its kill until it answered again.
type outages struct {
	sync.Mutex
	away  bool
	ended time.Time
}

func (o *outages) begin() {
	o.Lock()
	defer o.Unlock()
	o.away = true
}

func (o *outages) end() {
	o.Lock()
	defer o.Unlock()
	o.away, o.ended = false, time.Now()
}

// since reports whether the database was unreachable at any time after start.
func (o *outages) since(start time.Time) bool {
	o.Lock()
	defer o.Unlock()
	return o.away || o.ended.After(start)
}
