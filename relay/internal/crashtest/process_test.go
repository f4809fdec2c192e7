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

// process is a relay or a verifier. Its methods are for one goroutine, but for asking and serving.
type process struct {
	name    string
	args    []string // of the command in bin
	folder  string   // of a relay's files
	address string   // of a relay, behind its road
	admin   string   // of a relay's admin address, or of a verifier's page
	log     string
	seat    int            // hop; the verifier's is behind the last
	task    *taskfile.Open // a verifier's
	world   *world

	cmd     *exec.Cmd
	started time.Time
	serving [kinds]atomic.Int64 // requests under way to it
	asking  [kinds]atomic.Int64 // requests under way from it, to the relay before
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

// errEnded is returned where a process has ended by itself, which it may only do while its
// database is away.
var errEnded = errors.New("ended by itself")

// freeze stops the process where it is, and returns when it stands still.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("%s: %w: %w", p.name, errEnded, err)
	}
	return p.wait(syscall.WUNTRACED)
}

// excused returns err, or nil where the process has ended because its database was away.
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

// up says whether the process listens.
func (p *process) up() bool {
	c, err := net.DialTimeout("tcp", p.admin, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// kill is kill -9.
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

// outages remembers when a database was away: from the moment at which it was killed to that at
// which it answered again.
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

// since says whether the database was away at some time from start on.
func (o *outages) since(start time.Time) bool {
	o.Lock()
	defer o.Unlock()
	return o.away || o.ended.After(start)
}
