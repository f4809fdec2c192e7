//go:build js && wasm

// Command worker is the edge worker's module, app.wasm. It runs package edge on Cloudflare's runtime with
// github.com/syumai/workers. entry.mjs starts one instance for many requests (docs/edge.md).
//
//	go run ./www/build -edge build/edge
package main

import (
	"errors"
	"net/http"
	"syscall/js"
	"time"

	"github.com/syumai/workers"
	"github.com/syumai/workers/cloudflare"
	"github.com/syumai/workers/cloudflare/fetch"

	"github.com/doona-dp/doona/wasm/edge"
)

func main() {
	worker, err := open()
	if err != nil {
		logLine("doona: " + err.Error())
		serve(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { edge.Refuse(out, err) }),
			func(edge.Observation) {})
	}
	serve(worker, worker.Observe)
}

func open() (*edge.Worker, error) {
	config, err := edge.ParseConfig(variable("DOONA"))
	if err != nil {
		return nil, err
	}
	host := edge.Host{HTTP: fetcher{fetch.NewClient()}, Pause: pause, Background: background, Log: logLine,
		Secret: secret}
	if !cloudflare.GetBinding(visitors).IsUndefined() {
		host.CheckQuota = claim
	}
	return edge.New(config, host)
}

func secret(name string) string {
	if v := cloudflare.GetBinding(name); name != "" && v.Type() == js.TypeString {
		return v.String()
	}
	return ""
}

// visitors names the binding of the Durable Objects of class Visitors.
const visitors = "DOONA_VISITORS"

// claim asks the Durable Object of a task's epoch to count one report; see [edge.QuotaCheck].
func claim(network, epoch string, most, end uint64) (bool, error) {
	namespace := cloudflare.GetBinding(visitors)
	stub := namespace.Call("get", namespace.Call("idFromName", epoch))
	free, err := await(stub.Call("claim", network, float64(most), 1000*float64(end)))
	return err == nil && free.Truthy(), err
}

// fetcher sends requests with the runtime's fetch and follows no redirect. net/http's Client would do the same, but
// would make the module a third larger.
type fetcher struct{ client *fetch.Client }

func (f fetcher) Do(req *http.Request) (*http.Response, error) {
	return f.client.Do(&fetch.Request{Request: req}, &fetch.RequestInit{Redirect: fetch.RedirectModeManual})
}

// serve answers requests until the runtime ends the isolate. For each passing request, entry.mjs calls observe(country,
// cache, milliseconds, status, address).
func serve(handler http.Handler, observe func(edge.Observation)) {
	js.Global().Get("context").Get("binding").Set("observe", js.FuncOf(func(_ js.Value, args []js.Value) any {
		observe(edge.Observation{Country: args[0].String(), Cache: args[1].String(), Latency: args[2].Float(),
			Status: args[3].Int(), Visitor: args[4].String()})
		return nil
	}))
	workers.ServeNonBlock(handler)
	workers.Ready()
	select {}
}

// variable returns a variable as JSON. wrangler.jsonc may hold an object or a string of JSON.
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

// background is cloudflare.WaitUntil, but also releases the JavaScript function, which the library would keep.
func background(work func()) {
	var start js.Func
	start = js.FuncOf(func(_ js.Value, args []js.Value) any {
		start.Release() // JavaScript calls it exactly once, right away
		go func() {
			work()
			args[0].Invoke()
		}()
		return nil
	})
	js.Global().Get("context").Get("ctx").Call("waitUntil", js.Global().Get("Promise").New(start))
}

// pause waits on the runtime's timer, which belongs to the current request. Go's timers never fire here (entry.mjs).
func pause(d time.Duration) { await(js.Global().Get("scheduler").Call("wait", d.Milliseconds())) }

// await returns the result of a JavaScript promise, or its rejection as an error.
func await(promise js.Value) (value js.Value, err error) {
	done := make(chan struct{})
	then := js.FuncOf(func(_ js.Value, args []js.Value) any {
		value = args[0]
		close(done)
		return nil
	})
	defer then.Release()
	failed := js.FuncOf(func(_ js.Value, args []js.Value) any {
		err = errors.New(args[0].Call("toString").String())
		close(done)
		return nil
	})
	defer failed.Release()
	promise.Call("then", then, failed)
	<-done
	return value, err
}

func logLine(line string) { js.Global().Get("console").Call("error", line) }
