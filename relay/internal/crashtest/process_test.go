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

// process is a relay or a verifier. Its methods are for one goroutine, except those for asking and serving.
type process struct {
	name    string
	args    []string // of the command in bin
	folder  string   // of a relay's files
	address string   // of a relay, to its proxy
	admin   string   // of a relay's admin address, or of a verifier's page
	log     string
	hop     int            // the verifier's is after the last relay's
	task    *taskfile.Open // a verifier's
	world   *world

	cmd     *exec.Cmd
	started time.Time
	serving [kinds]atomic.Int64 // requests to it that are under way
	asking  [kinds]atomic.Int64 // requests from it to the upstream relay that are under way
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

// errEnded is returned if a process has ended by itself, which is allowed only while its database is unreachable.
var errEnded = errors.New("ended by itself")

// freeze suspends the process, and returns when it has stopped.
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

// check returns errEnded if the process has ended.
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

// up reports whether the process listens.
func (p *process) up() bool {
	c, err := net.DialTimeout("tcp", p.admin, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill sends SIGKILL.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.cmd.Wait()
	p.cmd = nil
	return nil
}

// end kills the process if it runs.
func (p *process) end() {
	if p.cmd != nil {
		p.kill()
	}
}

// outages records when a database was unreachable: from the moment at which it was killed to the moment at which it
// answered again.
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

// since reports whether the database was unreachable at some time from start on.
func (o *outages) since(start time.Time) bool {
	o.Lock()
	defer o.Unlock()
	return o.away || o.ended.After(start)
}
