//go:build js && wasm

// Command worker is the edge worker's module, app.wasm: package edge on Cloudflare's runtime, by
// github.com/syumai/workers. entry.mjs starts it, once for many requests (docs/edge.md).
//
//	go run ./wasm/edge/build
package main

import (
	"net/http"
	"syscall/js"
	"time"

	"github.com/syumai/workers"
	"github.com/syumai/workers/cloudflare"
	"github.com/syumai/workers/cloudflare/fetch"

	"github.com/doona-dp/doona/wasm/edge"
)

func main() {
	config, err := edge.ParseConfig(variable("DOONA"))
	if err != nil {
		logLine("doona: " + err.Error())
		serve(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { edge.Refuse(out, err) }), func(edge.Observation) {})
	}
	worker := edge.New(config, edge.Host{HTTP: fetcher{fetch.NewClient()}, Pause: pause, Background: cloudflare.WaitUntil, Log: logLine})
	serve(worker, worker.Observe)
}

// fetcher sends by the runtime's fetch and follows no redirect. It stands for an http.Client, which
// alone adds a third to the module.
type fetcher struct{ client *fetch.Client }

func (f fetcher) Do(req *http.Request) (*http.Response, error) {
	return f.client.Do(&fetch.Request{Request: req}, &fetch.RequestInit{Redirect: fetch.RedirectModeManual})
}

// serve answers requests until the isolate ends. entry.mjs calls observe(country, cache,
// milliseconds, status) for those that pass.
func serve(handler http.Handler, observe func(edge.Observation)) {
	js.Global().Get("context").Get("binding").Set("observe", js.FuncOf(func(_ js.Value, args []js.Value) any {
		observe(edge.Observation{Country: args[0].String(), Cache: args[1].String(), Latency: args[2].Float(), Status: args[3].Int()})
		return nil
	}))
	workers.ServeNonBlock(handler)
	workers.Ready()
	select {}
}

// variable returns a variable as JSON: wrangler.jsonc may hold an object or a string.
func variable(name string) []byte {
	v := cloudflare.GetBinding(name)
	switch v.Type() {
	case js.TypeUndefined:
		return nil
	case js.TypeString:
		return []byte(v.String())
	}
	return []byte(js.Global().Get("JSON").Call("stringify", v).String())
}

// pause waits by the runtime's timer, which belongs to the request at hand as Go's would not.
func pause(d time.Duration) {
	done := make(chan struct{})
	then := js.FuncOf(func(js.Value, []js.Value) any {
		close(done)
		return nil
	})
	defer then.Release()
	js.Global().Get("scheduler").Call("wait", d.Milliseconds()).Call("then", then, then)
	<-done
}

func logLine(line string) { js.Global().Get("console").Call("error", line) }
