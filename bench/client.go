package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wasm"
)

// peerName is the package that a web developer would use today: it sends Prio3 reports to two aggregators.
const peerName = "@divviup/dap 0.9.1"

// The client rows measure how long a client takes to turn a value into a request body for two relays, in ms, and the
// body's size in bytes.
var (
	native   = Group{Names: clientNames("native"), Run: measureNative}
	node     = Group{Names: clientNames("node"), Run: measureNode}
	chromium = Group{Names: clientNames("chromium"), Run: measureChromium}
)

func clientNames(where string) (names []string) {
	for _, k := range kinds {
		names = append(names, "client/"+k.name+"/"+where+"/ms", "client/"+k.name+"/"+where+"/bytes")
	}
	return names
}

// samples holds what one runtime (Go, node or Chromium) measured for one kind of report: the time of each run in ms,
// and the size of a report.
type samples struct {
	MS    []float64 `json:"ms"`
	Bytes float64   `json:"bytes"`
}

// rows returns the row of times and the row of sizes. It compares both with the peer unless peer is nil.
func (s samples) rows(kind, where string, peer *samples) []Row {
	name := "client/" + kind + "/" + where
	ms, bytes := newRow(name+"/ms", "ms", lower, s.MS...), newRow(name+"/bytes", "bytes", lower, s.Bytes)
	if peer != nil {
		ms, bytes = ms.against(peerName, peer.MS...), bytes.against(peerName, peer.Bytes)
	}
	return []Row{ms, bytes}
}

func measureNative(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, k := range kinds {
		progress("client/%s/native", k.name)
		open, err := v.tasks[k.name].Bundle.Open(nil)
		if err != nil {
			return nil, err
		}
		client, err := shufflerclient.New(open, shufflerclient.Options{MaxEpsilon: 1})
		if err != nil {
			return nil, err
		}
		var got samples
		for range 200 {
			before := time.Now()
			report, err := client.Report(0, k.value)
			if err != nil {
				return nil, err
			}
			got.MS = append(got.MS, float64(time.Since(before))/1e6)
			got.Bytes = float64(len(report.Body))
		}
		rows = append(rows, got.rows(k.name, "native", nil)...)
	}
	return rows, nil
}

func measureNode(ctx context.Context, s *Setup) ([]Row, error) {
	return s.inJavaScript(ctx, "node", "node.mjs")
}

func measureChromium(ctx context.Context, s *Setup) ([]Row, error) {
	return s.inJavaScript(ctx, "chromium", "chromium.mjs")
}

// offer describes a task to the scripts of bench/browser: its kind, its bundle and the value to report.
type offer struct {
	Kind   string    `json:"kind"`
	Bundle []byte    `json:"bundle"` // base64
	Value  []float64 `json:"value"`
}

// inJavaScript measures every kind of report in node or Chromium. It runs a script of bench/browser that prints
// {kind: {ours, peer}}.
func (s *Setup) inJavaScript(ctx context.Context, where, script string) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	var offers []offer
	for _, k := range kinds {
		bundle, err := v.tasks[k.name].Bundle.Bytes()
		if err != nil {
			return nil, err
		}
		offers = append(offers, offer{k.name, bundle, k.value})
	}
	var got map[string]struct {
		Ours samples  `json:"ours"`
		Peer *samples `json:"peer"`
	}
	progress("client/*/%s", where)
	if err := s.script(ctx, script, map[string]any{"offers": offers, "peer": s.Peers(ctx)}, &got); err != nil {
		return nil, err
	}
	var rows []Row
	for _, k := range kinds {
		rows = append(rows, got[k.name].Ours.rows(k.name, where, got[k.name].Peer)...)
	}
	return rows, nil
}

// script writes the request, with the servers' addresses, to a file. It runs a script of bench/browser with the file's
// path, and decodes the JSON that the script prints.
func (s *Setup) script(ctx context.Context, name string, request map[string]any, into any) error {
	path, err := s.Chromium(ctx)
	if err != nil {
		return err
	}
	request["site"], request["relay"] = s.server.site, s.server.relay
	request["module"] = s.server.hashed(wasm.Browser.File())
	argument := filepath.Join(s.site, "request.json")
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("couldn't encode the request: %w", err)
	}
	if err := os.WriteFile(argument, text, 0o600); err != nil {
		return fmt.Errorf("couldn't write the request for bench/browser/%s: %w", name, err)
	}
	if err := os.Setenv("CHROMIUM", path); err != nil {
		return fmt.Errorf("couldn't set the variable CHROMIUM to %s: %w", path, err)
	}
	out, err := command(ctx, "node", filepath.Join("bench", "browser", name), argument)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("couldn't decode the JSON that bench/browser/%s printed: %w", name, err)
	}
	return nil
}

// hashed returns the path at which the site serves a file of the SDK, with its hash and a leading slash.
func (v *server) hashed(file string) string {
	name, ext, _ := strings.Cut(file, ".")
	pattern := regexp.MustCompile("^/" + name + "-[0-9a-f]+\\." + ext + "$")
	for name := range v.files {
		if pattern.MatchString(name) {
			return name
		}
	}
	return ""
}
