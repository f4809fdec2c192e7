package secret_test

import (
	"crypto/rand"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/secret"
	"github.com/doona-dp/doona/internal/testing/memscan"
)

// TestClearRegisters: a signal that interrupts a copy leaves the copied bytes in memory, in the registers that the
// kernel saves. ClearRegisters must overwrite them.
func TestClearRegisters(t *testing.T) {
	var needle *memscan.Needle
	release := make(chan struct{})
	defer close(release)
	for begin := time.Now(); needle == nil; {
		require.Less(t, time.Since(begin), time.Minute, "no signal interrupted a copy")
		key := make([]byte, 32)
		rand.Read(key)
		n := memscan.New("interrupted", slices.Clone(key))
		interruptCopies(key, release)
		clear(key) // Its bytes are now in no variable.
		if len(memscan.Count(t, n)) > 0 {
			needle = n
		}
	}
	secret.ClearRegisters()
	left := memscan.Count(t, needle)
	for begin := time.Now(); len(left) > 0 && time.Since(begin) < time.Second; left = memscan.Count(t, needle) {
	}
	require.Empty(t, left)
}

// interruptCopies copies a key all the time, on a thread that gets 20 signals meanwhile. Until release is closed, the
// thread then waits, so it gets no other signal.
func interruptCopies(key []byte, release chan struct{}) {
	var stop atomic.Bool
	thread, done := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		to := make([]byte, 32)
		thread <- syscall.Gettid()
		for !stop.Load() {
			for range 100 {
				copy(to, key)
			}
		}
		clear(to)
		clearStack()
		close(done)
		<-release
	}()
	id := <-thread
	for range 20 {
		time.Sleep(10 * time.Microsecond)
		_ = syscall.Tgkill(syscall.Getpid(), id, syscall.SIGURG)
	}
	stop.Store(true)
	<-done
}

// clearStack overwrites the stack where the scheduler may have saved registers.
//
//go:noinline
func clearStack() {
	var stack [4096]byte
	runtime.KeepAlive(&stack)
}
