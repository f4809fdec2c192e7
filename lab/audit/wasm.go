package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wasm"
	"github.com/doona-dp/doona/wire/task"
)

// Browsers runs clients in doona.wasm, the same module that browsers load.
type Browsers struct {
	engine wazero.Runtime
	code   wazero.CompiledModule
}

// NewBrowsers compiles the module.
func NewBrowsers(ctx context.Context, code []byte) (*Browsers, error) {
	b := &Browsers{engine: wazero.NewRuntime(ctx)}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, b.engine); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	var err error
	if b.code, err = b.engine.CompileModule(ctx, code); err != nil {
		return nil, errors.Join(fmt.Errorf("couldn't compile doona.wasm: %w", err), b.Close(ctx))
	}
	return b, nil
}

// Close frees all instances.
func (b *Browsers) Close(ctx context.Context) error { return b.engine.Close(ctx) }

// browser is one running instance of doona.wasm that has opened a task.
type browser struct {
	module api.Module
	task   *task.Task
	handle uint64
	enough uint32 // Memory size in bytes; above it a new instance replaces this one.
}

// signed adds relays, verifier and epochs to a draft and signs it, because doona.wasm accepts only complete tasks.
func signed(draft *task.Task) (*task.Task, error) {
	f, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"},
		task.Epochs{Start: uint64(time.Now().Unix()), Length: 3600, Count: 1})
	if err != nil {
		return nil, err
	}
	return f.Task, nil
}

// Client returns a client that runs in doona.wasm. The task must name its parties. at is how many calls of the client
// can run concurrently; further calls wait.
func (b *Browsers) Client(ctx context.Context, t *task.Task, at int) (ClientFunc, error) {
	free := make(chan *browser, at)
	for range at {
		one, err := b.start(ctx, t)
		if err != nil {
			return nil, err
		}
		free <- one
	}
	return func(_ *randomizer.Source, value []float64) ([][]task.Message, error) {
		one := <-free
		defer func() { free <- one }()
		if err := one.restart(ctx, b); err != nil {
			return nil, err
		}
		return one.report(ctx, value)
	}, nil
}

func (b *Browsers) start(ctx context.Context, t *task.Task) (*browser, error) {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").
		WithRandSource(randomizer.NewSource())
	module, err := b.engine.InstantiateModule(ctx, b.code, config)
	if err != nil {
		return nil, err
	}
	one := &browser{module: module, task: t}
	status, result, err := one.call(ctx, "open", t.Canonical())
	if err == nil && status < 0 {
		err = fmt.Errorf("doona.wasm refused the task: %q", result)
	}
	one.handle, one.enough = uint64(status), module.Memory().Size()+wasm.MostGrowth
	return one, err
}

// restart replaces the instance with a new one if its memory has grown above enough.
func (b *browser) restart(ctx context.Context, from *Browsers) error {
	if b.module.Memory().Size() <= b.enough {
		return nil
	}
	fresh, err := from.start(ctx, b.task)
	if err != nil {
		return err
	}
	err = b.module.Close(ctx)
	*b = *fresh
	return err
}

// call writes the argument into the module's memory, calls an exported function, and returns its status and result
// (docs/wasm.md).
func (b *browser) call(ctx context.Context, name string, argument []byte, args ...uint64) (int32, []byte, error) {
	export := func(name string, args ...uint64) (uint64, error) {
		out, err := b.module.ExportedFunction(name).Call(ctx, args...)
		if err != nil {
			return 0, err
		}
		return out[0], nil
	}
	address, err := export("input", uint64(len(argument)))
	if err != nil {
		return 0, nil, err
	}
	if !b.module.Memory().Write(uint32(address), argument) {
		return 0, nil, fmt.Errorf("doona.wasm: couldn't write %d bytes at the address of export input", len(argument))
	}
	status, err := export(name, args...)
	if err != nil {
		return 0, nil, err
	}
	at, err := export("result")
	if err != nil {
		return 0, nil, err
	}
	size, err := export("result_size")
	if err != nil {
		return 0, nil, err
	}
	result, ok := b.module.Memory().Read(uint32(at), uint32(size))
	if !ok {
		return 0, nil, fmt.Errorf("doona.wasm: the result of export %s lies outside of its memory", name)
	}
	return int32(status), result, nil
}

// report randomizes a value and decodes the resulting slots. For each lane the result holds the number of slots (4
// bytes, little-endian). For each slot it holds one byte, 0 for a cover, and the bytes of the message.
func (b *browser) report(ctx context.Context, value []float64) ([][]task.Message, error) {
	argument := []byte{}
	for _, x := range value {
		argument = binary.LittleEndian.AppendUint64(argument, math.Float64bits(x))
	}
	status, result, err := b.call(ctx, "randomize", argument, b.handle)
	if err != nil {
		return nil, err
	}
	if status != 0 {
		return nil, fmt.Errorf("doona.wasm refused the value: %q", result)
	}
	size := int(b.task.Slots.MessageBytes)
	lanes := make([][]task.Message, b.task.Slots.Lanes)
	for lane := range lanes {
		if len(result) < 4 {
			return nil, errors.New("doona.wasm: a short result")
		}
		n := int(binary.LittleEndian.Uint32(result))
		if result = result[4:]; len(result) < n*(1+size) {
			return nil, errors.New("doona.wasm: a short result")
		}
		for range n {
			m := task.Message{Cover: result[0] == 0}
			if !m.Cover {
				m.Body = append([]byte(nil), result[1:1+size]...)
			}
			lanes[lane], result = append(lanes[lane], m), result[1+size:]
		}
	}
	return lanes, nil
}
