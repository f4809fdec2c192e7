// Package workerd runs a worker's folder in workerd, Cloudflare's open-source runtime, without a network. All the
// worker's requests go to one address, whatever their URL. The package is for tests and measurements.
package workerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options describes a worker.
type Options struct {
	Dir      string         // Folder of modules, as wasm.BuildWorker makes it.
	Entry    string         // Its entry module: "entry.mjs".
	Outbound string         // host:port that receives all requests of the worker.
	Vars     map[string]any // Variables, which the worker gets as JSON values.
	Objects  []Object       // Durable Objects. Their storage is deleted when workerd ends.
}

// Object is a class of Durable Objects that the entry module exports, and the name of its binding.
type Object struct{ Binding, Class string }

// Process is a running workerd.
type Process struct {
	URL     string // URL of the worker.
	command *exec.Cmd
	log     lockedBuffer
	folder  string
	ended   chan struct{}
}

// Path returns the path of workerd in www/node_modules. root is this module's root folder.
func Path(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, "www", "node_modules", "@cloudflare", "workerd-*", "bin",
		"workerd"))
	if err != nil || len(found) != 1 {
		return "", errors.New("couldn't find workerd in www/node_modules: run www/setup.sh")
	}
	return found[0], nil
}

// Start starts workerd, found at path program, with a worker. It returns when workerd listens.
func Start(ctx context.Context, program string, o Options) (*Process, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "doona-workerd")
	if err != nil {
		return nil, fmt.Errorf("couldn't make a folder: %w", err)
	}
	p := &Process{URL: "http://" + address, folder: folder, ended: make(chan struct{})}
	if err := writeConfig(filepath.Join(folder, "worker.capnp"), o, address); err != nil {
		p.Close()
		return nil, err
	}
	p.command = exec.CommandContext(ctx, program, "serve", filepath.Join(folder, "worker.capnp"))
	p.command.Stdout, p.command.Stderr = &p.log, &p.log
	if err := p.command.Start(); err != nil {
		p.Close()
		return nil, fmt.Errorf("couldn't start workerd: %w", err)
	}
	go func() {
		p.command.Wait()
		close(p.ended)
	}()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return p, nil
		}
		select {
		case <-p.ended:
			p.Close()
			return nil, fmt.Errorf("couldn't start workerd:\n%s", p.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Close ends workerd and deletes the worker's storage.
func (p *Process) Close() {
	if p.command != nil && p.command.Process != nil { // otherwise it never started
		p.command.Process.Kill()
		<-p.ended
	}
	os.RemoveAll(p.folder)
}

// Log returns the output of workerd and the worker.
func (p *Process) Log() string { return p.log.String() }

// CPU returns the processor time that workerd's threads have used.
func (p *Process) CPU() (total time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid))
	if err != nil || len(threads) == 0 {
		return 0, errors.New("couldn't find workerd's threads")
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		onCPU, _, _ := strings.Cut(string(stat), " ")
		nanoseconds, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("couldn't read workerd's processor time: %w", err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

// Memory returns the bytes of memory that workerd holds, or 0 if they are unknown.
func (p *Process) Memory() int64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.command.Process.Pid))
	fields := strings.Fields(string(stat)) // the second field is the resident set, in pages
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("couldn't listen: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// writeConfig writes workerd's configuration in Cap'n Proto text, and lets Durable Objects store next to it.
func writeConfig(file string, o Options, address string) error {
	files, err := os.ReadDir(o.Dir)
	if err != nil {
		return fmt.Errorf("couldn't read the worker's folder: %w", err)
	}
	names := []string{o.Entry}
	for _, f := range files {
		if f.Name() != o.Entry {
			names = append(names, f.Name())
		}
	}
	modules := make([]string, len(names))
	for i, name := range names {
		if modules[i], err = module(filepath.Dir(file), o.Dir, name); err != nil {
			return err
		}
	}
	var bindings []string
	for name, value := range o.Vars {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("couldn't encode variable %s: %w", name, err)
		}
		bindings = append(bindings, fmt.Sprintf("(name = %s, json = %s)", literal(name), literal(string(text))))
	}
	var classes []string
	for _, object := range o.Objects {
		bindings = append(bindings,
			fmt.Sprintf("(name = %s, durableObjectNamespace = %s)", literal(object.Binding), literal(object.Class)))
		classes = append(classes, fmt.Sprintf("(className = %s, uniqueKey = %s, enableSql = true)",
			literal(object.Class), literal(object.Class)))
	}
	text := fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .worker), (name = "out", external = (address = %s, http = ())),
    (name = "disk", disk = (path = %s, writable = true)) ],
  sockets = [ (name = "http", address = %s, http = (), service = "main") ] );
const worker :Workerd.Worker = (
  modules = [ %s ],
  bindings = [ %s ],
  globalOutbound = "out",
  durableObjectNamespaces = [ %s ],
  durableObjectStorage = (localDisk = "disk"),
  compatibilityDate = "2026-11-01",
  compatibilityFlags = [ "nodejs_als" ] );
`, literal(o.Outbound), literal(filepath.Dir(file)), literal(address), strings.Join(modules, ", "), strings.Join(bindings, ", "), strings.Join(classes, ", "))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("couldn't write workerd's configuration: %w", err)
	}
	return nil
}

// module returns the configuration of one of the worker's files. Its path is relative to from.
func module(from, dir, file string) (string, error) {
	kind := "esModule"
	if filepath.Ext(file) == ".wasm" {
		kind = "wasm"
	}
	path, err := filepath.Abs(filepath.Join(dir, file))
	if err == nil {
		path, err = filepath.Rel(from, path)
	}
	if err != nil {
		return "", fmt.Errorf("couldn't find the worker's folder: %w", err)
	}
	return fmt.Sprintf("(name = %s, %s = embed %s)", literal(file), kind, literal(path)), nil
}

func literal(s string) string { return strconv.Quote(s) }

// lockedBuffer is a buffer that workerd writes while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
