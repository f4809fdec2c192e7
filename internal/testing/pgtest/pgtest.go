//go:build unix

// Package pgtest runs a real PostgreSQL server for tests and benchmarks: in a temporary folder, on a socket in it, as
// an unprivileged user, with the durability settings of production.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"
)

// Server is a PostgreSQL server. It ends when the process that started it ends.
type Server struct {
	// Data is the server's data folder: heap, indexes and write-ahead log.
	Data string

	dir, bin  string
	as        *syscall.Credential // nil if it runs as this process's own user
	ended     chan struct{}       // closed when the server has ended
	process   *os.Process
	databases atomic.Int64
}

// The database user that owns everything in the server.
const owner = "doona"

var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns this process's shared server, and starts it at the first call.
func Shared() (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := Start()
		if err != nil {
			return nil, err
		}
		shared.server = s
	}
	return shared.server, nil
}

// StopShared stops the server that Shared started, if any.
func StopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return s.Stop()
}

// Start creates a server and waits until it accepts connections. It uses the programs in
// /usr/lib/postgresql/VERSION/bin of the highest version, or on the PATH. As they refuse to run as root, root runs them
// as the user postgres or nobody.
func Start() (*Server, error) { return StartIn("") }

// StartIn is Start with the server's folder inside the given folder. The server's user must be able to enter that
// folder.
func StartIn(folder string) (*Server, error) {
	s := &Server{}
	err := s.lay(folder)
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("couldn't start PostgreSQL: %w", err)
	}
	return s, nil
}

// lay creates the server's folder and an empty database cluster.
func (s *Server) lay(parent string) (err error) {
	if s.bin, err = findPrograms(); err != nil {
		return err
	}
	if s.as, err = unprivileged(); err != nil {
		return err
	}
	if err := s.mkdir(parent); err != nil {
		return err
	}
	initdb := s.command("initdb", "-D", s.Data, "-U", owner, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb failed: %w: %s", err, out)
	}
	return nil
}

// mkdir creates the server's folder, without its data folder.
func (s *Server) mkdir(parent string) (err error) {
	if s.dir, err = os.MkdirTemp(parent, "pgtest"); err != nil {
		return err
	}
	s.Data = filepath.Join(s.dir, "data")
	if s.as == nil {
		return nil
	}
	return os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid))
}

func findPrograms() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) > 0 {
		return filepath.Dir(found[0]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("couldn't find initdb and postgres: not in /usr/lib/postgresql/*/bin nor on the PATH: " +
			"install it (Debian: apt-get install postgresql)")
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}

// version returns the version in a path: 15 in /usr/lib/postgresql/15/bin/initdb.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// unprivileged returns the user that runs the server if this process is root, else nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL can't run as root, and there is no user postgres or nobody")
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// Promote makes a stopped server start with a new timeline id, as a promoted replica does.
func (s *Server) Promote() error {
	files := map[string]string{"recovery.signal": "", "postgresql.auto.conf": "restore_command = 'false'\n"}
	for name, text := range files {
		path := filepath.Join(s.Data, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if s.as != nil {
			if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Restart starts a server that has ended. It waits until the server accepts connections.
func (s *Server) Restart() error {
	cmd := s.command("postgres", "-D", s.Data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+s.dir,
		"-c", "max_connections=200", "-c", "logging_collector=off")
	endWithParent(cmd.SysProcAttr)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // Linux kills the child when this thread ends, so keep the thread
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.ended = cmd.Process, ended
	return s.Wait()
}

// Wait waits until the server accepts connections. A recovery while other tests run has taken more than a minute.
func (s *Server) Wait() error {
	db, err := sql.Open("pgx", s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := db.Ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", s.lastLog())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w: %s", err, s.lastLog())
		}
	}
}

func (s *Server) lastLog() []byte {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return log[max(0, len(log)-1000):]
}

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s", owner, database, url.QueryEscape(s.dir))
}

// Database creates an empty database and returns its URL.
func (s *Server) Database() (string, error) {
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	db, err := sql.Open("pgx", s.dsn("postgres"))
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("couldn't create a database: %w", err)
	}
	return s.dsn(name), nil
}

// Crash kills all server processes at once, as a power loss would: they flush nothing. Restart then recovers the
// database.
func (s *Server) Crash() error { return s.end(syscall.SIGQUIT) }

// Halt shuts the server down and writes everything to disk. Restart starts it again.
func (s *Server) Halt() error { return s.end(syscall.SIGINT) }

func (s *Server) end(how os.Signal) error {
	if err := s.process.Signal(how); err != nil {
		return fmt.Errorf("couldn't stop PostgreSQL: %w", err)
	}
	<-s.ended
	return nil
}

// Stop ends the server and deletes its folder.
func (s *Server) Stop() error {
	if s.process != nil {
		s.process.Signal(syscall.SIGQUIT) // an error means that it has already ended
		<-s.ended
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Log writes a copy of the server's log to w.
func (s *Server) Log(w io.Writer) error {
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err == nil {
		_, err = w.Write(log)
	}
	return err
}
